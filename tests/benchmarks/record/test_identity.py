"""Which runs are of one model: by digest, by revision in old records, and how several of one name are labelled."""

import pytest

from benchmarks.record.identity import model_labels


def model(name="m", digest=None, revision="files-sha256:aaaabbbbcccc", dtype="float32") -> dict:
    own = {"name": name, "revision": revision, "dtype": dtype}
    return own if digest is None else own | {"weights_digest": digest}


A, B = "0123456789abcdef", "fedcba9876543210"


@pytest.mark.parametrize(
    ("models", "labels"),
    [
        ([], []),
        ([model(), model("n")], ["m", "n"]),
        ([model(digest=A), model(digest=A, revision="another folder")], ["m", "m"]),
        ([model(digest=A), model(digest=B), model("n", digest=B)], ["m (01234567)", "m (fedcba98)", "n"]),
        ([model(), model(revision="files-sha256:ddddeeeeffff")], ["m (aaaabbbb)", "m (ddddeeee)"]),
        ([model(), model(digest=A)], ["m", "m"]),  # measured again after records had digests
        ([model(digest=A), model(digest=B, dtype="float16")], ["m", "m"]),  # its digest is of the rounded weights
        (
            [model(digest=A), model(digest=B, dtype="float16"), model(digest="c" * 16, revision="r:x")],
            ["m (01234567)", "m (01234567)", "m (cccccccc)"],
        ),
    ],
)
def test_labels(models, labels):
    assert model_labels(models) == labels
    assert model_labels(models[::-1]) == labels[::-1]

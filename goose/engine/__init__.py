"""The engine: token ids, draft trees and logits. No text, no datasets, no configuration, no clock policy."""

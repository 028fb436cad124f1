"""The methods GOOSE is compared with, one file each. They depend on goose/ and on nothing above it."""

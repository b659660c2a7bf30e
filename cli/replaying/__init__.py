"""`isvc-sync replay`, `diff`, `explain`, `timeline`, `explore`, `shrink`: finding out from a capture."""

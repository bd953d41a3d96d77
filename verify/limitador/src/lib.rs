//! The limits files of limitador, decided by limitador and by tidegate: see `tests/traces.rs`.

//! The code of Envoy's and Kuadrant's messages is that of their protocol files: `tests/proto.rs`.

//! nginx, HAProxy, Traefik and Caddy in front of an application, with the files of `deploy/`, and a real tidegate that they
//! ask. `cargo xtask install` gets all four.

mod admission;
mod client;
mod outage;
mod proxy;
mod running;
mod told;

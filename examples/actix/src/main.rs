//! A server of actix-web that admits 60 requests a minute of each client, three at once.
//!
//! ```text
//! cargo run -p tidegate-example-actix
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:8080/; done
//! ```

use std::io;

use actix_web::middleware::from_fn;
use actix_web::web::{Data, get};
use actix_web::{App, HttpServer, rt};
use tidegate::{Limit, Limiter, Rule};
use tidegate_example_actix::{RateLimit, rate_limit};

fn main() -> io::Result<()> {
    let rule = Rule::new("clients", Limit::per_minute(60).burst(3)).key(["ip"]);
    let limits = Data::new(RateLimit::new(Limiter::new(rule)));
    let server = HttpServer::new(move || {
        App::new().app_data(limits.clone()).wrap(from_fn(rate_limit)).route("/", get().to(async || "hello\n"))
    });
    println!("http://127.0.0.1:8080/");
    rt::System::new().block_on(server.bind(("127.0.0.1", 8080))?.run())
}

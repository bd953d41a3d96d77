//! Scrapers of the metrics that come all at once.

use crate::server::client::Connection;
use crate::server::running::Running;

#[test]
fn three_hundred_scrapers_at_once_share_a_few_renderings_and_no_threads() {
    const SCRAPERS: usize = 300;
    let server = Running::start(&[]);
    let mut scrapers: Vec<Connection> = (0..SCRAPERS).map(|_| Connection::open(server.address())).collect();
    for scraper in &mut scrapers {
        scraper.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    }
    let mut texts: Vec<String> = scrapers.iter_mut().map(|scraper| scraper.answer().unwrap().body).collect();
    assert!(texts[0].contains("tidegate_connections_total"), "{}", texts[0]);
    // A rendering says how many connections there have been. One a second, on however slow a machine.
    texts.sort_unstable();
    texts.dedup();
    assert!(texts.len() < SCRAPERS / 10, "{} renderings", texts.len());
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let threads: usize = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok()).unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(threads < 20 + 9 * cores, "{threads} threads");
}

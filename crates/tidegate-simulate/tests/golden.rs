//! Runs that are the same on every machine and after every change: a table and
//! a chart for each seed, recorded in `tests/golden`.
//!
//! `TIDEGATE_WRITE_GOLDEN=1 cargo test -p tidegate-simulate --test all golden` records
//! them anew; look at what changed.

use std::path::Path;
use std::{env, fs};

use tidegate::Limit;
use tidegate_simulate::{Report, Scenario, every_algorithm, read_time};

/// A name, traffic, a limit that all five share unless it is on requests in flight, a length and a seed.
const RUNS: [(&str, &str, &str, &str, u64); 9] = [
    ("constant", "150/min", "100/min burst 20", "5min", 0),
    ("poisson", "poisson 2/s", "100/min", "5min", 7),
    ("poisson-other-seed", "poisson 2/s", "100/min", "5min", 8),
    ("bursts", "bursts 200 every 2min within 10s from 55s", "100/min", "4min", 0),
    ("on-off", "on-off 100/s 5s on 10s off cost 2", "600/10s burst 300", "1min", 0),
    ("diurnal", "diurnal 1/s to 20/s every 1h", "600/min", "1h", 42),
    (
        "clients",
        "alice: poisson 5/s + bursts 50 every 10s; 8 clients: diurnal 1/s to 9/s every 20s; 1/s",
        "3/s",
        "30s",
        1,
    ),
    ("reservations", "poisson 1/s cost 400 actual 100..900 lasting 1s..5s", "1000/10s", "2min", 3),
    ("in-flight", "poisson 4/s lasting 1s..5s; bursts 30 every 20s lasting 4s", "in-flight 8 for 10s", "1min", 3),
];

fn run((_, traffic, limit, length, seed): (&str, &str, &str, &str, u64)) -> Report {
    let limit: Limit = limit.parse().unwrap();
    let limits = if limit.is_in_flight() { vec![limit] } else { every_algorithm(limit).unwrap() };
    let scenario = Scenario::new(traffic.parse().unwrap()).limits(limits);
    scenario.seed(seed).lasting(read_time(length).unwrap().to_duration()).run().unwrap()
}

#[test]
fn recorded_runs_give_the_same_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for recorded in RUNS {
        let report = run(recorded);
        let text = format!("{}\n\n{}\n{}", report.traffic, report.table(), report.chart());
        let path = folder.join(format!("{}.txt", recorded.0));
        if env::var_os("TIDEGATE_WRITE_GOLDEN").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&path).unwrap(), "{}", path.display());
    }
}

#[test]
fn a_picture_is_the_same_whichever_way_it_is_written() {
    for recorded in [RUNS[3], RUNS[6], RUNS[8]] {
        let picture = run(recorded).picture();
        let svg = picture.to_svg();
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        let size = format!("viewBox=\"0 0 720 {}\"", picture.height());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains(&size));

        let bytes = picture.to_png().unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (2 * 720, 2 * picture.height()));
        // What is admitted, refused and within the limit can be seen in both.
        for colour in ["0b7a80", "c03d26", "abd1d2"] {
            let rgb = [0, 2, 4].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
            assert!(svg.contains(colour) && pixels.chunks(3).any(|pixel| pixel == rgb), "{}: {colour}", recorded.0);
        }
    }
}

#[test]
fn names_cannot_break_out_of_a_picture() {
    let traffic = "<script>&\"x\": 5/s".parse().unwrap();
    let svg = Scenario::new(traffic).limits([Limit::per_second(1)]).run().unwrap().picture().to_svg();
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;&amp;&quot;x&quot;: constant 5/s"));
}

//! The pictures as text: one block is one request.

use crate::simulation::{COLUMNS, Run};

const HEIGHT: usize = 5;

/// Every run in turn, under one legend.
pub(crate) fn draw(runs: &[Run]) -> String {
    let mut lines = vec![
        "One block is one request: █ admitted, ░ refused, ▪ leaving. A column is 100 ms.".to_owned(),
        "Every limit is 10 per second; windows begin at 0, 1 and 2 s.".to_owned(),
    ];
    for run in runs {
        lines.push(String::new());
        lines.extend(draw_one(run));
    }
    lines.join("\n")
}

fn draw_one(run: &Run) -> Vec<String> {
    let (asked, admitted, most) = (run.requests.len(), run.admitted().count(), run.most_admitted());
    let head = format!("{}: {admitted} of {asked} admitted, up to {most} in one second", run.name());
    let mut lines = vec![head];
    for row in (1..=HEIGHT).rev() {
        let block = |(admitted, refused): (usize, usize)| match row {
            row if row <= admitted => '█',
            row if row <= admitted + refused => '░',
            _ => ' ',
        };
        lines.push(line(run.arrivals().map(block)));
    }
    lines.push("0─────────1─────────2─────────3 s".to_owned());
    if run.delays() {
        let mark = |leaving| if leaving > 0 { '▪' } else { ' ' };
        let most = run.most_leaving();
        lines.push(format!("{:COLUMNS$} leaving: up to {most} in one second", line(run.departures().map(mark))));
    }
    lines
}

fn line(columns: [char; COLUMNS]) -> String {
    columns.iter().collect::<String>().trim_end().to_owned()
}

//! The pictures as images: above, every request in the column in which it
//! came; below, how much was admitted in the second before each instant.
//!
//! Whole numbers only, so that every machine draws the same file. Colours
//! follow the reader's preference; fonts are the reader's own.

use crate::simulation::{COUNT, LENGTH, PERIOD, Run};

const WIDTH: u64 = 680;
const LEFT: u64 = 44;
/// The width of a column, and the microseconds in a pixel that follow from it.
const COLUMN_WIDTH: u64 = 20;
const MICROS_PER_PIXEL: u64 = crate::simulation::COLUMN / COLUMN_WIDTH;
const ROW_HEIGHT: u64 = 14;
/// The heights at which the parts stand.
const LEGEND: u64 = 33;
const ARRIVALS: u64 = 144;
const DEPARTURES: u64 = ARRIVALS + 22;
const LAST_SECOND: u64 = 290;
const HEIGHT: u64 = LAST_SECOND + 28;
/// The height of one request in the lower part.
const UNIT: u64 = 4;

/// Plain rules, once for light and once for dark: not every viewer knows more.
const STYLE: &str = "
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #59636e }
  .title { font-size: 16px; font-weight: 600; fill: #1f2328 }
  .paper { fill: #ffffff }
  .pass { fill: #1f6fb8 }
  .stop { fill: none; stroke: #c2571a; stroke-width: 1.5 }
  .rule { stroke: #818b98 }
  .edge { stroke: #d1d9e0; stroke-dasharray: 2 3 }
  .area { fill: #cfe3f5 }
  .level { fill: none; stroke: #1f6fb8; stroke-width: 1.5 }
  .limit { stroke: #1f2328; stroke-dasharray: 6 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 }
    .title { fill: #f0f6fc }
    .paper { fill: #0d1117 }
    .pass { fill: #58a6ff }
    .stop { stroke: #f0883e }
    .rule { stroke: #656c76 }
    .edge { stroke: #3d444d }
    .area { fill: #16324f }
    .level { stroke: #58a6ff }
    .limit { stroke: #f0f6fc }
  }
";

pub(crate) fn file_name(run: &Run) -> String {
    format!("{}.svg", run.name().replace(' ', "-"))
}

pub(crate) fn draw(run: &Run) -> String {
    let mut image = Image::default();
    let (asked, admitted, most) = (run.requests.len(), run.admitted().count(), run.most_admitted());
    let mut words = format!("{admitted} of {asked} requests admitted, up to {most} in one second");
    if run.delays() {
        words += &format!("; up to {} leave in one second", run.most_leaving());
    }
    image.text(LEFT, 24, "title", &format!("{}, {COUNT} per second", run.name()));
    image.text(LEFT, 43, "", &words);
    image.legend(run);
    image.arrivals(run);
    image.last_second(run);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{}: {words}\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n{}</svg>\n",
        run.name(),
        image.0,
    )
}

/// The elements so far.
#[derive(Default)]
struct Image(String);

impl Image {
    fn legend(&mut self, run: &Run) {
        self.block(LEFT + 380, LEGEND - 18, "pass");
        self.text(LEFT + 400, LEGEND - 9, "", "admitted");
        self.block(LEFT + 470, LEGEND - 18, "stop");
        self.text(LEFT + 490, LEGEND - 9, "", "refused");
        if run.delays() {
            self.dot(LEFT + 558, LEGEND - 13);
            self.text(LEFT + 568, LEGEND - 9, "", "leaving");
        }
    }

    fn arrivals(&mut self, run: &Run) {
        self.seconds(ARRIVALS);
        for (column, (admitted, refused)) in run.arrivals().into_iter().enumerate() {
            for row in 0..admitted + refused {
                let kind = if row < admitted { "pass" } else { "stop" };
                self.block(column_at(column) + 2, ARRIVALS - ROW_HEIGHT * (row as u64 + 1), kind);
            }
        }
        if run.delays() {
            for request in run.admitted().filter(|request| request.leaves < LENGTH) {
                self.dot(x(request.leaves), DEPARTURES + 6);
            }
            self.text(LEFT, DEPARTURES + 10, "", "leaving");
        }
    }

    /// How many were admitted in the second before each instant, as steps.
    fn last_second(&mut self, run: &Run) {
        self.seconds(LAST_SECOND);
        let times: Vec<u64> = run.admitted().map(|request| request.at).collect();
        // What expires at an instant no longer counts at it.
        let counts_at = |at: u64| times.iter().filter(|time| (**time..**time + PERIOD).contains(&at)).count() as u64;
        let mut steps: Vec<u64> = times.iter().flat_map(|time| [*time, time + PERIOD]).collect();
        steps.sort_unstable();
        steps.dedup();
        let mut path = format!("M{LEFT} {LAST_SECOND}");
        for at in steps.into_iter().filter(|at| *at < LENGTH) {
            path += &format!("H{}V{}", x(at), LAST_SECOND - UNIT * counts_at(at));
        }
        path += &format!("H{}", x(LENGTH));
        self.element(&format!("<path class=\"area\" d=\"{path}V{LAST_SECOND}\"/>"));
        self.element(&format!("<path class=\"level\" d=\"{path}\"/>"));
        let limit = LAST_SECOND - UNIT * COUNT;
        self.element(&format!(
            "<line class=\"limit\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{limit}\" y2=\"{limit}\"/>",
            x(LENGTH)
        ));
        self.text(LEFT - 22, limit + 4, "", &COUNT.to_string());
        self.text(LEFT, limit - UNIT * COUNT - 10, "", "admitted in the last second");
    }

    /// A time axis with a mark at every second.
    fn seconds(&mut self, y: u64) {
        for second in 0..=LENGTH / PERIOD {
            let x = x(second * PERIOD);
            self.element(&format!("<line class=\"edge\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{y}\"/>", y - 72));
            self.text(x - 4, y + 16, "", &format!("{second} s"));
        }
        self.element(&format!("<line class=\"rule\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>", x(LENGTH)));
    }

    fn block(&mut self, x: u64, y: u64, class: &str) {
        // A stroke takes half of its width outside of the rectangle.
        let (inset, width, height) = if class == "stop" { (1, 14, 9) } else { (0, 16, 11) };
        let (x, y) = (x + inset, y + inset + 1);
        self.element(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\"/>"
        ));
    }

    fn dot(&mut self, x: u64, y: u64) {
        self.element(&format!("<circle class=\"pass\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>"));
    }

    fn text(&mut self, x: u64, y: u64, class: &str, words: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.element(&format!("<text{class} x=\"{x}\" y=\"{y}\">{words}</text>"));
    }

    fn element(&mut self, element: &str) {
        self.0.push_str(element);
        self.0.push('\n');
    }
}

fn x(at: u64) -> u64 {
    LEFT + at / MICROS_PER_PIXEL
}

fn column_at(column: usize) -> u64 {
    LEFT + COLUMN_WIDTH * column as u64
}

//! A picture as SVG: colours follow the reader's preference, fonts are the
//! reader's own.

use std::fmt::{self, Write};

use super::{Anchor, Ink, Picture, Shape, Step, WIDTH};

impl Picture {
    /// The picture as the text of an SVG file.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        self.write(&mut svg).expect("a string takes whatever is written");
        svg
    }

    fn write(&self, svg: &mut String) -> fmt::Result {
        let (height, words) = (self.height, escaped(&self.words));
        write!(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" ")?;
        writeln!(svg, "height=\"{height}\" role=\"img\" aria-label=\"{words}\">")?;
        write!(svg, "<style>\n{}", rules(0))?;
        writeln!(svg, "@media (prefers-color-scheme: dark) {{\n{}}}\n</style>", rules(1))?;
        writeln!(svg, "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>")?;
        for shape in &self.shapes {
            shape.write(svg)?;
        }
        writeln!(svg, "</svg>")
    }
}

/// How each ink looks, plainly: not every viewer knows more.
fn rules(paper: usize) -> String {
    let mut rules = String::new();
    if paper == 0 {
        rules += "text { font-family: system-ui, sans-serif; font-size: 12px }\n";
        rules += ".title { font-size: 13px; font-weight: 600 }\n";
        rules += "line { shape-rendering: crispEdges }\n.limit { stroke-dasharray: 6 4 }\n";
    }
    for ink in Ink::ALL {
        let (class, colour) = (ink.class(), ink.colours()[paper]);
        let property = match ink {
            Ink::Paper | Ink::Title | Ink::Text | Ink::Admitted | Ink::Refused | Ink::Leaving => "fill",
            Ink::Within | Ink::Above | Ink::Burst => "fill",
            Ink::Edge | Ink::Rule | Ink::Limit | Ink::Worst => "stroke",
        };
        rules += &format!(".{class} {{ {property}: #{colour:06x} }}\n");
        // Words beside a bracket, and brackets that are nothing special.
        match ink {
            Ink::Worst => rules += &format!("text.{class} {{ fill: #{colour:06x}; stroke: none; font-weight: 600 }}\n"),
            Ink::Text => rules += &format!("line.{class} {{ stroke: #{colour:06x} }}\n"),
            Ink::Paper
            | Ink::Title
            | Ink::Admitted
            | Ink::Refused
            | Ink::Leaving
            | Ink::Within
            | Ink::Above
            | Ink::Burst => {}
            Ink::Edge | Ink::Rule | Ink::Limit => {}
        }
    }
    rules
}

impl Shape {
    fn write(&self, svg: &mut String) -> fmt::Result {
        match self {
            Shape::Box { ink, x, y, width, height } => {
                let class = ink.class();
                writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>")
            }
            Shape::Line { ink, from, to } => {
                let ((x1, y1), (x2, y2), class) = (from, to, ink.class());
                writeln!(svg, "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>")
            }
            Shape::Area { ink, from, steps } => {
                write!(svg, "<path class=\"{}\" d=\"", ink.class())?;
                let mut from = *from;
                for steps in steps.chunk_by(|one, next| is_empty(one) == is_empty(next) && one.bottom == next.bottom) {
                    let (first, last) = (steps[0], steps[steps.len() - 1]);
                    if !is_empty(&first) {
                        write!(svg, "M{from} {}", first.bottom)?;
                        for step in steps {
                            write!(svg, "V{}H{}", step.top, step.to)?;
                        }
                        write!(svg, "V{}Z", last.bottom)?;
                    }
                    from = last.to;
                }
                writeln!(svg, "\"/>")
            }
            Shape::Text { ink, x, y, anchor, words } => {
                let anchor = match anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                writeln!(svg, "<text class=\"{}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", ink.class(), escaped(words))
            }
        }
    }
}

fn is_empty(step: &Step) -> bool {
    step.top == step.bottom
}

/// Names of clients may have any letters in them.
fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

//! Every small defect that can be made in a line of Lua, one at a time.
//!
//! Lines are enough: no string, comment or expression of the scripts is longer.
//! Whether a defect is still Lua the interpreter tells.

/// A line with a defect in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlantedDefect {
    /// Counted from 0.
    pub(super) line: usize,
    /// The whole line, and what it becomes, without the space around them.
    pub(super) from: String,
    pub(super) to: String,
}

impl PlantedDefect {
    /// The text with the defect in it.
    pub(super) fn made_in(&self, text: &str) -> String {
        let lines = text.lines().enumerate();
        lines.map(|(number, line)| if number == self.line { &*self.to } else { line }.to_owned() + "\n").collect()
    }
}

/// All defects that can be made in a text.
pub(super) fn defects(text: &str) -> Vec<PlantedDefect> {
    let mut defects = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for to in variants(line) {
            defects.push(PlantedDefect { line: number, from: line.trim().to_owned(), to: to.trim().to_owned() });
        }
    }
    defects
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Text,
    Sign,
}

#[derive(Clone, Copy, Debug)]
struct Token<'l> {
    kind: Kind,
    at: usize,
    text: &'l str,
}

fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = line[at..].chars().next() {
        let rest = &line[at..];
        let while_is = |is: fn(char) -> bool| rest.find(|letter| !is(letter)).unwrap_or(rest.len());
        let (kind, length) = match first {
            ' ' => {
                at += 1;
                continue;
            }
            '-' if rest.starts_with("--[[") => {
                // A mark, and what stands behind it is code.
                at += rest.find("]]").map_or(rest.len(), |end| end + 2);
                continue;
            }
            '-' if rest.starts_with("--") => break,
            '\'' => (Kind::Text, rest[1..].find('\'').map_or(rest.len(), |end| end + 2)),
            '0'..='9' => (Kind::Number, while_is(|letter| letter.is_ascii_digit())),
            'a'..='z' | 'A'..='Z' | '_' => {
                (Kind::Word, while_is(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
            }
            _ if ["==", "~=", "<=", ">=", ".."].iter().any(|sign| rest.starts_with(sign)) => (Kind::Sign, 2),
            _ => (Kind::Sign, first.len_utf8()),
        };
        tokens.push(Token { kind, at, text: &rest[..length] });
        at += length;
    }
    tokens
}

/// What a line could be instead.
fn variants(line: &str) -> Vec<String> {
    let tokens = tokens(line);
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Vec::new() };
    let mut variants = vec![String::new()];
    let replaced = |from: usize, to: usize, by: &str| format!("{}{by}{}", &line[..from], &line[to..]);
    for (index, token) in tokens.iter().enumerate() {
        let is_tie = is_larger_or_smaller(&tokens, index);
        let before = index.checked_sub(1).map(|before| tokens[before]);
        for by in instead(*token, before, tokens.get(index + 1)) {
            // Of two that are the same, either is.
            if is_tie && by.starts_with(token.text.trim_end_matches('=')) {
                continue;
            }
            variants.push(replaced(token.at, token.at + token.text.len(), &by));
        }
    }
    let by: &[&str] = match (first.text, last.text) {
        ("if" | "elseif", "then") => &[" true ", " false "],
        ("while", "do") => &[" false "],
        _ => &[],
    };
    variants.extend(by.iter().map(|by| replaced(first.at + first.text.len(), last.at, by)));
    variants
}

/// From where on a double no longer tells a number from the next.
const EXACT: u64 = 1 << 53;

/// What a word could be instead.
fn instead(token: Token<'_>, before: Option<Token<'_>>, after: Option<&Token<'_>>) -> Vec<String> {
    let by: &[&str] = match (token.kind, token.text) {
        (Kind::Number, digits) => {
            let number: u64 = digits.parse().unwrap_or_default();
            let more = (number < EXACT).then(|| number + 1);
            return [more, number.checked_sub(1)].into_iter().flatten().map(|number| number.to_string()).collect();
        }
        (Kind::Text, "''") => &[],
        (Kind::Text, _) => &["''"],
        (_, "<") => &["<=", ">="],
        (_, "<=") => &["<", ">"],
        (_, ">") => &[">=", "<="],
        (_, ">=") => &[">", "<"],
        (_, "==") => &["~="],
        (_, "~=") => &["=="],
        (_, "+") => &["-"],
        (_, "-") if is_operand(before) => &["+"],
        (_, "-" | "not") => &[""],
        (_, "*") => &["/"],
        (_, "/" | "%") => &["*"],
        (_, "and") => &["or"],
        (_, "or") => &["and"],
        (_, "true") => &["false"],
        (_, "false") => &["true"],
        (_, "floor") if after.is_some_and(|after| after.text == "(") => &["math.ceil"],
        (Kind::Word | Kind::Sign, _) => &[],
    };
    by.iter().map(|&by| by.to_owned()).collect()
}

/// Whether a comparison chooses one of the two that it compares: `a < b and a or b`.
fn is_larger_or_smaller(tokens: &[Token<'_>], comparison: usize) -> bool {
    let around = comparison.checked_sub(1).and_then(|first| tokens.get(first..first + 7));
    let words = around.map(|tokens| <[&str; 7]>::try_from(tokens.iter().map(|token| token.text).collect::<Vec<_>>()));
    matches!(words, Some(Ok([left, "<" | ">", right, "and", one, "or", other])) if [left, right] == [one, other])
}

/// Whether a minus that follows takes something from it.
fn is_operand(token: Option<Token<'_>>) -> bool {
    token.is_some_and(|token| match token.kind {
        Kind::Number | Kind::Text => true,
        Kind::Word => !["return", "and", "or", "not", "then", "in"].contains(&token.text),
        Kind::Sign => [")", "]"].contains(&token.text),
    })
}

#[test]
fn a_line_has_all_its_defects() {
    let cases: [(&str, &[&str]); 8] = [
        ("-- only a comment", &[]),
        ("--[[bucket]]", &[]),
        ("  end", &[""]),
        (
            "at = -floor(-1 / n) -- up",
            &[
                "",
                "at = floor(-1 / n) -- up",
                "at = -math.ceil(-1 / n) -- up",
                "at = -floor(1 / n) -- up",
                "at = -floor(-2 / n) -- up",
                "at = -floor(-0 / n) -- up",
                "at = -floor(-1 * n) -- up",
            ],
        ),
        ("if not a then", &["", "if  a then", "if true then", "if false then"]),
        ("x = a < b and a or b", &["", "x = a >= b and a or b", "x = a < b or a or b", "x = a < b and a and b"]),
        ("--[[long]] x = a <= b", &["", "--[[long]] x = a < b", "--[[long]] x = a > b"]),
        ("f('a-b', 9007199254740992)", &["", "f('', 9007199254740992)", "f('a-b', 9007199254740991)"]),
    ];
    for (line, defects) in cases {
        assert_eq!(variants(line), defects, "{line}");
    }
}

#[test]
fn a_defect_is_made_in_its_line_only() {
    let text = "a = 1\na = 1\n";
    let second = defects(text).into_iter().rfind(|defect| defect.to == "a = 2").expect("one more");
    assert_eq!(second.made_in(text), "a = 1\na = 2\n");
}

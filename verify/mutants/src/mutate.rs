//! Every small defect that can be made in a Rust file, all of them at once.
//!
//! An expression becomes a `match` on the number of the defect that is to be
//! made: `a < b` is rewritten as
//!
//! ```text
//! (match (&(a), &(b)) { (l, r) => match crate::mutant::active(7) { 7 => l <= r, 8 => l >= r, _ => l < r } })
//! ```
//!
//! so one build holds them all, and each part of an expression stands in it once.
//! Lines stay where they are, so what the compiler does not like can be left out.

use std::collections::BTreeSet;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ExprMethodCall, Lit, ReturnType, Signature, Stmt, Type, UnOp};

/// A defect that can be made.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// By which it is asked for.
    pub id: u32,
    /// The first one of the same place.
    pub place: u32,
    pub file: String,
    /// The function it is made in, with its type.
    pub function: String,
    pub from: String,
    pub to: String,
    pub line: usize,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mutant { file, function, from, to, line, .. } = self;
        write!(f, "{file}:{line}, {function}:\n  - {from}\n  + {to}")
    }
}

/// A file with all its defects in it.
pub struct Mutated {
    pub text: String,
    pub mutants: Vec<Mutant>,
}

/// Puts all defects into a file, but for those on certain lines; ids go on from `next`.
pub fn mutate(file: &str, text: &str, without: &BTreeSet<usize>, next: u32) -> Result<Mutated, syn::Error> {
    let tree = syn::parse_file(text)?;
    let (mutants, edits) = (Vec::new(), Vec::new());
    let mut visitor = Visitor { file, text, without, next, mutants, edits, owner: String::new(), function: None };
    visitor.visit_file(&tree);
    Ok(Mutated { text: visitor.edited(), mutants: visitor.mutants })
}

struct Visitor<'f> {
    file: &'f str,
    text: &'f str,
    without: &'f BTreeSet<usize>,
    next: u32,
    mutants: Vec<Mutant>,
    edits: Vec<Edit>,
    /// The type whose functions these are.
    owner: String,
    function: Option<Function>,
}

#[derive(Clone)]
struct Function {
    name: String,
    is_const: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    After,
    Before,
    Instead,
}

/// A text put in at a place, or instead of a range.
struct Edit {
    range: Range<usize>,
    side: Side,
    text: String,
}

impl Visitor<'_> {
    fn edited(&self) -> String {
        // What encloses is visited first: it opens before what it encloses, and closes after it.
        let mut order: Vec<(usize, &Edit)> = self.edits.iter().enumerate().collect();
        order.sort_by_key(|(visited, edit)| {
            let visited = *visited as i64;
            (edit.range.start, edit.side, if edit.side == Side::After { -visited } else { visited })
        });
        let (mut edited, mut at) = (String::new(), 0);
        for (_, Edit { range, text, .. }) in order {
            edited.push_str(&self.text[at..range.start]);
            edited.push_str(text);
            at = range.end;
        }
        edited + &self.text[at..]
    }

    fn source(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn line(&self, node: &impl Spanned) -> usize {
        node.span().start().line
    }

    fn is_wanted(&self, node: &impl Spanned) -> bool {
        let span = node.span();
        self.function.is_some() && !(span.start().line..=span.end().line).any(|line| self.without.contains(&line))
    }

    /// Numbers defects of one place: the switch, and the number of each.
    fn enlist(&mut self, node: &impl Spanned, tos: &[String]) -> (String, Vec<u32>) {
        let Some(Function { name, .. }) = self.function.clone() else { return Default::default() };
        let place = self.next;
        let from = one_line(self.source(node));
        let line = self.line(node);
        for to in tos {
            let (id, file, function, to) = (self.next, self.file.to_owned(), name.clone(), one_line(to));
            self.mutants.push(Mutant { id, place, file, function, from: from.clone(), to, line });
            self.next += 1;
        }
        (format!("crate::mutant::active({place})"), (place..self.next).collect())
    }

    fn insert(&mut self, at: usize, side: Side, text: String) {
        self.edits.push(Edit { range: at..at, side, text });
    }

    fn enclose(&mut self, range: &Range<usize>, before: String, after: String) {
        self.insert(range.start, Side::Before, before);
        self.insert(range.end, Side::After, after);
    }

    fn replace(&mut self, range: Range<usize>, text: String) {
        self.edits.push(Edit { range, side: Side::Instead, text });
    }

    /// One expression or another, in place of all of it.
    fn choose(&mut self, node: &impl Spanned, others: &[String]) {
        if !self.is_wanted(node) {
            return;
        }
        let range = node.span().byte_range();
        let (switch, ids) = self.enlist(node, others);
        // By itself it would not say much.
        let start = self.text[..range.start].rfind('\n').map_or(0, |end| end + 1);
        let end = self.text[range.end..].find('\n').map_or(self.text.len(), |end| range.end + end);
        for (mutant, other) in self.mutants.iter_mut().rev().zip(others.iter().rev()) {
            mutant.from = one_line(&self.text[start..end]);
            mutant.to = one_line(&format!("{}{other}{}", &self.text[start..range.start], &self.text[range.end..end]));
        }
        let arms: String = ids.iter().zip(others).map(|(id, other)| format!("{id} => {other}, ")).collect();
        self.enclose(&range, format!("(match {switch} {{ {arms}_ => "), " })".to_owned());
    }

    fn binary(&mut self, node: &ExprBinary) {
        if !self.is_wanted(node) {
            return;
        }
        let (left, right) = (self.source(&node.left).to_owned(), self.source(&node.right).to_owned());
        let (range, op) = (node.span().byte_range(), node.op.span().byte_range());
        let sign = self.text[op.clone()].to_owned();
        let tos =
            |others: &[&str]| -> Vec<String> { others.iter().map(|other| format!("{left} {other} {right}")).collect() };
        match node.op {
            BinOp::And(_) | BinOp::Or(_) if contains_let(&node.left) || contains_let(&node.right) => {}
            BinOp::And(_) | BinOp::Or(_) => {
                let (other, compared) = if sign == "&&" { ("||", "!=") } else { ("&&", "==") };
                let (switch, ids) = self.enlist(node, &tos(&[other]));
                self.enclose(&range, "(match (".to_owned(), " } else { l } })".to_owned());
                self.replace(op, format!(") {{ l => if l {compared} ({switch} == {}) {{ ", ids[0]));
            }
            op_kind => {
                let others: &[&str] = match op_kind {
                    BinOp::Lt(_) => &["<=", ">="],
                    BinOp::Le(_) => &["<", ">"],
                    BinOp::Gt(_) => &[">=", "<="],
                    BinOp::Ge(_) => &[">", "<"],
                    BinOp::Eq(_) => &["!="],
                    BinOp::Ne(_) => &["=="],
                    BinOp::Add(_) => &["-"],
                    BinOp::Sub(_) => &["+"],
                    BinOp::Mul(_) => &["/"],
                    BinOp::Div(_) | BinOp::Rem(_) => &["*"],
                    BinOp::BitAnd(_) => &["|"],
                    BinOp::BitOr(_) | BinOp::BitXor(_) => &["&"],
                    BinOp::Shl(_) => &[">>"],
                    BinOp::Shr(_) => &["<<"],
                    BinOp::AddAssign(_) => &["-="],
                    BinOp::SubAssign(_) => &["+="],
                    BinOp::MulAssign(_) => &["/="],
                    BinOp::DivAssign(_) | BinOp::RemAssign(_) => &["*="],
                    BinOp::BitAndAssign(_) => &["|="],
                    BinOp::BitOrAssign(_) | BinOp::BitXorAssign(_) => &["&="],
                    BinOp::ShlAssign(_) => &[">>="],
                    BinOp::ShrAssign(_) => &["<<="],
                    _ => return,
                };
                let (switch, ids) = self.enlist(node, &tos(others));
                let (assigned, plain) = match sign.strip_suffix('=') {
                    Some(plain) if !["=", "!", "<", ">"].contains(&plain) => (format!("{left} = "), plain),
                    _ => (String::new(), sign.as_str()),
                };
                let is_compared = matches!(
                    op_kind,
                    BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) | BinOp::Eq(_) | BinOp::Ne(_)
                );
                // A comparison must not move what it compares; but no reference can be compared in a `const fn`.
                let by_reference = is_compared && !self.function.as_ref().is_some_and(|function| function.is_const);
                let by = if by_reference { "&" } else { "" };
                let other =
                    |other: &&str| if assigned.is_empty() { other } else { other.trim_end_matches('=') }.to_owned();
                let arms: String =
                    ids.iter().zip(others).map(|(id, to)| format!("{id} => l {} r, ", other(to))).collect();
                let (open, close) = if assigned.is_empty() { ("(", ")") } else { ("", "") };
                self.enclose(
                    &range,
                    format!("{open}{assigned}match ({by}("),
                    format!(")) {{ (l, r) => match {switch} {{ {arms}_ => l {plain} r }} }}{close}"),
                );
                self.replace(op, format!("), {by}("));
            }
        }
    }

    /// A method of two numbers that could have been another.
    fn method(&mut self, node: &ExprMethodCall) {
        let Some(argument) = node.args.first().filter(|_| node.args.len() == 1 && node.turbofish.is_none()) else {
            return;
        };
        let (name, receiver) = (node.method.to_string(), self.source(&node.receiver).to_owned());
        let other = match name.as_str() {
            "min" => "l.max(r)",
            "max" => "l.min(r)",
            "div_ceil" => "l / r",
            "saturating_sub" => "l.wrapping_sub(r)",
            "saturating_mul" => "l.wrapping_mul(r)",
            _ => return,
        };
        if !self.is_wanted(node) {
            return;
        }
        let to = other.replacen('l', &receiver, 1).replace("(r)", &format!("({})", self.source(argument)));
        let to = to.replace("/ r", &format!("/ {}", self.source(argument)));
        let (switch, ids) = self.enlist(node, &[to]);
        let (from, argument) = (node.receiver.span().byte_range(), argument.span().byte_range());
        let range = node.span().byte_range();
        self.enclose(
            &range,
            "(match ((".to_owned(),
            format!(") {{ (l, r) => match {switch} {{ {} => {other}, _ => l.{name}(r) }} }})", ids[0]),
        );
        self.replace(from.end..argument.start, "), (".to_owned());
        self.replace(argument.end..range.end, ")".to_owned());
    }

    fn condition(&mut self, condition: &Expr, others: &[&str]) {
        if !contains_let(condition) {
            self.choose(condition, &others.iter().map(|&other| other.to_owned()).collect::<Vec<_>>());
        }
    }

    /// A function that does nothing but answer.
    fn body(&mut self, signature: &Signature, block: &syn::Block) {
        let answers: &[&str] = match &signature.output {
            ReturnType::Default => &["()"],
            ReturnType::Type(_, of) => match self.source(of) {
                "bool" => &["true", "false"],
                "u64" | "u32" | "usize" => &["0", "1"],
                "Micros" => &["Micros::ZERO", "Micros::new(1)"],
                text if text.starts_with("Option<") => &["None"],
                _ => &[],
            },
        };
        if answers.is_empty() || block.stmts.is_empty() || self.without.contains(&self.line(&signature.ident)) {
            return;
        }
        // What it says already is no defect.
        let said = block.stmts.last().map_or("", |last| self.source(last)).to_owned();
        let answers: Vec<&str> = answers.iter().copied().filter(|answer| *answer != said).collect();
        if answers.is_empty() {
            return;
        }
        let tos: Vec<String> = answers.iter().map(|answer| format!("{{ {answer} }}")).collect();
        let (switch, ids) = self.enlist(&block.brace_token.span.open(), &tos);
        for mutant in self.mutants.iter_mut().rev().take(ids.len()) {
            mutant.from = "the whole body".to_owned();
            mutant.line = signature.ident.span().start().line;
        }
        let returns: String = ids
            .iter()
            .zip(&answers)
            .map(|(id, answer)| format!(" if {switch} == {id} {{ return {answer}; }}"))
            .collect();
        self.insert(block.brace_token.span.open().byte_range().end, Side::Before, returns);
    }

    fn within(&mut self, signature: &Signature, block: &syn::Block) {
        let owner = if self.owner.is_empty() { String::new() } else { format!("{}::", self.owner) };
        let name = format!("{owner}{}", signature.ident);
        let outer = self.function.replace(Function { name, is_const: signature.constness.is_some() });
        self.body(signature, block);
        visit::visit_block(self, block);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.within(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.within(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.within(&item.sig, block);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let owner = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            other => Some(self.source(other).to_owned()),
        };
        let outer = std::mem::replace(&mut self.owner, owner.unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let outer = std::mem::replace(&mut self.owner, item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    // What is no expression that runs: nothing can be asked for there.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, &["true", "false"]);
            self.visit_expr(guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(end)) = statement {
            let is_assigned = matches!(expression, Expr::Binary(binary) if is_assignment(&binary.op));
            let is_one = is_assigned || matches!(expression, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_));
            if is_one && self.is_wanted(statement) {
                let (switch, ids) = self.enlist(statement, &[String::new()]);
                let range = expression.span().byte_range().start..end.span().byte_range().end;
                self.enclose(&range, format!("if {switch} != {} {{ ", ids[0]), " }".to_owned());
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, conditional: &'ast syn::ExprIf) {
        self.condition(&conditional.cond, &["true", "false"]);
        visit::visit_expr_if(self, conditional);
    }

    fn visit_expr_while(&mut self, repeated: &'ast syn::ExprWhile) {
        self.condition(&repeated.cond, &["false"]);
        visit::visit_expr_while(self, repeated);
    }

    fn visit_expr_binary(&mut self, node: &'ast ExprBinary) {
        self.binary(node);
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_method_call(&mut self, node: &'ast ExprMethodCall) {
        self.method(node);
        visit::visit_expr_method_call(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        if matches!(node.op, UnOp::Not(_)) && self.is_wanted(node) {
            let operator = node.op.span().byte_range();
            let inner = self.source(&node.expr).to_owned();
            let (switch, ids) = self.enlist(node, &[inner]);
            let range = node.span().byte_range();
            self.enclose(
                &range,
                "(match (".to_owned(),
                format!(") {{ l => if {switch} == {} {{ l }} else {{ !l }} }})", ids[0]),
            );
            self.replace(operator, String::new());
        }
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_lit(&mut self, node: &'ast syn::ExprLit) {
        match &node.lit {
            Lit::Int(number) => {
                if let Ok(value) = number.base10_parse::<u64>() {
                    let suffix = number.suffix();
                    let others = [value.checked_add(1), value.checked_sub(1)].into_iter().flatten();
                    let others: Vec<String> = others.map(|other| format!("{other}{suffix}")).collect();
                    self.choose(node, &others);
                }
            }
            Lit::Bool(answer) => self.choose(node, &[(!answer.value).to_string()]),
            _ => {}
        }
    }
}

fn is_assignment(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Whether an expression binds names for what comes after it.
fn contains_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_test = attribute.path().is_ident("test");
        let of = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => String::new(),
        };
        is_test || of == "test" || of == "loom" || of.starts_with("all (test") || of.starts_with("all (loom")
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_expression_stands_in_its_place_once() {
        let text = "fn f(a: u64, b: u64) -> String {\n    if a + 1 < b { g(); }\n    String::new()\n}\n";
        let mutated = mutate("f.rs", text, &BTreeSet::new(), 1).expect("it is Rust");
        let tos: Vec<&str> = mutated.mutants.iter().map(|mutant| mutant.to.as_str()).collect();
        assert_eq!(
            tos,
            [
                "if true { g(); }",
                "if false { g(); }",
                "a + 1 <= b",
                "a + 1 >= b",
                "a - 1",
                "if a + 2 < b { g(); }",
                "if a + 0 < b { g(); }",
                ""
            ]
        );
        assert!(syn::parse_file(&mutated.text).is_ok(), "{}", mutated.text);
        assert_eq!(mutated.text.lines().count(), text.lines().count(), "lines stay where they are");
    }

    #[test]
    fn tests_constants_and_patterns_are_left_alone() {
        let text = "const A: u64 = 1 + 1;\n#[cfg(test)]\nmod tests { fn f() -> bool { 1 < 2 } }\nfn g(a: [u8; 3]) -> String { match 'a' { 'b' => h(), _ => h() } }\n";
        let mutated = mutate("f.rs", text, &BTreeSet::new(), 1).expect("it is Rust");
        assert_eq!((mutated.mutants.len(), mutated.text.as_str()), (0, text));
    }
}

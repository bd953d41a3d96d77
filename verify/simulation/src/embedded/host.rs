//! What a server is to the script: an interpreter with `redis`, `struct`,
//! `KEYS` and `ARGV`, and replies turned into the protocol's values.

use std::cell::{Cell, RefCell};
use std::env;
use std::rc::Rc;

use mlua::{
    BorrowedBytes, Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, Variadic, VmState,
};
use redis::{Arg, Cmd};
use tidegate_redis::scripts;

use super::keyspace::{Keyspace, Output};

thread_local! {
    /// One for the scripts as they are, and one for each change to them.
    static HOSTS: RefCell<Vec<(Option<Planted>, Rc<Host>)>> = const { RefCell::new(Vec::new()) };
}

/// A defect in the scripts, to see that it is found: one text for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planted {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// Runs a command that calls the script, on a keyspace.
///
/// # Errors
/// The text of the error that a server would answer.
pub(super) fn run(command: &Cmd, keyspace: &mut Keyspace) -> Result<redis::Value, String> {
    let words: Vec<&[u8]> = command
        .args_iter()
        .map(|word| match word {
            Arg::Simple(bytes) => bytes,
            _ => panic!("a call of the script holds plain arguments"),
        })
        .collect();
    run_words(&words, keyspace, None)
}

/// The same by the words of the command, by scripts that may have a defect.
pub(crate) fn run_words(
    words: &[&[u8]],
    keyspace: &mut Keyspace,
    planted: Option<Planted>,
) -> Result<redis::Value, String> {
    let host = host(planted);
    // The functions that Lua calls can only own what they use.
    std::mem::swap(&mut *host.keyspace.borrow_mut(), keyspace);
    let outcome = host.run(words);
    std::mem::swap(&mut *host.keyspace.borrow_mut(), keyspace);
    outcome.map_err(|error| error.to_string())
}

fn host(planted: Option<Planted>) -> Rc<Host> {
    HOSTS.with_borrow_mut(|hosts| {
        if let Some((_, host)) = hosts.iter().find(|(other, _)| *other == planted) {
            return Rc::clone(host);
        }
        let host = Rc::new(Host::new(texts(planted)).expect("Lua starts and the scripts compile"));
        hosts.push((planted, Rc::clone(&host)));
        host
    })
}

/// From now on this thread runs other texts in place of the scripts.
///
/// # Errors
/// If one of them is no Lua.
pub(super) fn replace(texts: [String; 2]) -> mlua::Result<()> {
    let other = Rc::new(Host::new(texts)?);
    HOSTS.with_borrow_mut(|hosts| {
        hosts.retain(|(planted, _)| planted.is_some());
        hosts.push((None, other));
    });
    Ok(())
}

/// How often the scripts may be called on this thread from now on: with one
/// that refuses nothing, some tests would ask for ever. Returns what was left.
pub(super) fn allow_calls(most: u64) -> u64 {
    host(None).calls_left.replace(most)
}

/// One interpreter, with the scripts compiled.
struct Host {
    lua: Lua,
    /// By the digests of the scripts that they stand for.
    scripts: Vec<(String, Function)>,
    keys: Slots,
    arguments: Slots,
    keyspace: Rc<RefCell<Keyspace>>,
    calls_left: Cell<u64>,
    /// Of this call, in thousands of instructions.
    spent: Rc<Cell<u32>>,
}

/// In thousands of instructions: no script comes near it, unless it goes round in circles.
const MAX_CALL: u32 = 1_000;

/// The scripts; or those with a defect in them, if there is one to plant. A
/// campaign that plants many names them in the environment, so that the tests
/// need not be compiled for each.
fn texts(planted: Option<Planted>) -> [String; 2] {
    let with_defect = |text: &str| match (planted, env::var("TIDEGATE_PLANTED_FROM"), env::var("TIDEGATE_PLANTED_TO")) {
        (Some(Planted { from, to }), ..) => text.replace(from, to),
        (None, Ok(from), Ok(to)) => text.replace(&from, &to),
        (None, ..) => text.to_owned(),
    };
    scripts().map(|(_, text)| with_defect(text))
}

/// As on a server, no script makes or misses a global variable.
const STRICT_GLOBALS: &str = "
    setmetatable(_G, {
      __newindex = function(_, name) error('a script makes the global ' .. name) end,
      __index = function(_, name) error('a script misses the global ' .. name) end,
    })
";

impl Host {
    fn new(texts: [String; 2]) -> mlua::Result<Host> {
        let lua = Lua::new_with(StdLib::STRING | StdLib::MATH | StdLib::TABLE, LuaOptions::default())?;
        let keyspace = Rc::new(RefCell::new(Keyspace::default()));
        let (keys, arguments) = (Slots::new(&lua)?, Slots::new(&lua)?);
        let redis = lua.create_table()?;
        redis.set("call", call(&lua, &keyspace)?)?;
        let pack = lua.create_table()?;
        pack.set("unpack", lua.create_function(unpack)?)?;
        let globals = lua.globals();
        globals.set("struct", pack)?;
        globals.set("redis", redis)?;
        globals.set("KEYS", &keys.table)?;
        globals.set("ARGV", &arguments.table)?;
        lua.load(STRICT_GLOBALS).exec()?;
        let compile = |((name, known), text): ((&str, &str), String)| {
            let script = lua.load(text).set_name(format!("={name}")).into_function()?;
            Ok((redis::Script::new(known).get_hash().to_owned(), script))
        };
        let scripts = scripts().into_iter().zip(texts).map(compile).collect::<mlua::Result<Vec<_>>>()?;
        let spent = Rc::new(Cell::new(0));
        let clock = Rc::clone(&spent);
        lua.set_hook(HookTriggers::new().every_nth_instruction(1_000), move |_, _| {
            clock.set(clock.get() + 1);
            match clock.get() > MAX_CALL {
                true => Err(mlua::Error::runtime("BUSY the script does not end")),
                false => Ok(VmState::Continue),
            }
        })?;
        Ok(Host { lua, scripts, keys, arguments, keyspace, calls_left: Cell::new(u64::MAX), spent })
    }

    fn run(&self, words: &[&[u8]]) -> mlua::Result<redis::Value> {
        let mut words = words.iter().copied();
        // After EVALSHA, the digest and how many keys there are.
        let digest = words.nth(1).unwrap_or_default();
        let known = self.scripts.iter().find(|(known, _)| known.as_bytes() == digest);
        let (_, script) = known.ok_or_else(|| mlua::Error::runtime("NOSCRIPT No matching script"))?;
        let count = words.next().and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        self.keys.fill(&self.lua, words.by_ref().take(count.expect("a number of keys")))?;
        self.arguments.fill(&self.lua, words)?;
        assert!(self.calls_left.get() > 0, "the script is called again and again");
        self.calls_left.set(self.calls_left.get() - 1);
        self.spent.set(0);
        to_protocol(&script.call(())?)
    }
}

/// A table of strings that is filled again and again.
struct Slots {
    table: Table,
    filled: RefCell<usize>,
}

impl Slots {
    fn new(lua: &Lua) -> mlua::Result<Slots> {
        Ok(Slots { table: lua.create_table()?, filled: RefCell::new(0) })
    }

    fn fill<'b>(&self, lua: &Lua, strings: impl Iterator<Item = &'b [u8]>) -> mlua::Result<()> {
        let mut count = 0;
        for string in strings {
            count += 1;
            self.table.raw_set(count, lua.create_string(string)?)?;
        }
        let before = self.filled.replace(count);
        (count + 1..=before).try_for_each(|index| self.table.raw_set(index, Value::Nil))
    }
}

/// `redis.call`.
fn call(lua: &Lua, keyspace: &Rc<RefCell<Keyspace>>) -> mlua::Result<Function> {
    let keyspace = Rc::clone(keyspace);
    let done = lua.create_table()?;
    done.set("ok", "OK")?;
    // Most commands have few words, which need no list.
    type Words = (Value, Value, Value, Value, Value, Variadic<Value>);
    lua.create_function(move |lua, words: Words| {
        let few = [&words.0, &words.1, &words.2, &words.3, &words.4];
        let count = few.iter().take_while(|word| !word.is_nil()).count();
        let mut texts: [Text; 5] = Default::default();
        for (text, word) in texts.iter_mut().zip(&few[..count]) {
            *text = Text::of(lua, word)?;
        }
        let bytes: [&[u8]; 5] = std::array::from_fn(|index| texts[index].bytes());
        let mut keyspace = keyspace.borrow_mut();
        let more = words.5.iter().map(|word| Text::of(lua, word)).collect::<mlua::Result<Vec<Text>>>()?;
        let answer = if more.is_empty() {
            keyspace.call(bytes[0], bytes.get(1..count).unwrap_or_default())
        } else {
            let all: Vec<&[u8]> = bytes[1..].iter().copied().chain(more.iter().map(Text::bytes)).collect();
            keyspace.call(bytes[0], &all)
        };
        Ok(match answer.map_err(mlua::Error::runtime)? {
            Output::Nothing => Value::Boolean(false),
            Output::Done => Value::Table(done.clone()),
            Output::Number(number) => Value::Number(number),
            Output::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
            Output::Text(text) => Value::String(lua.create_string(text)?),
            Output::Several(values) => {
                let values = values.iter().map(|bytes| lua.create_string(bytes));
                Value::Table(lua.create_sequence_from(values.collect::<mlua::Result<Vec<_>>>()?)?)
            }
        })
    })
}

/// `struct.unpack`, as far as the script needs it: bytes and doubles, in the
/// order that `<` stands for.
fn unpack(_: &Lua, (format, packed): (LuaString, LuaString)) -> mlua::Result<Variadic<f64>> {
    let (format, packed) = (format.as_bytes(), packed.as_bytes());
    let mut rest: &[u8] = &packed;
    let mut numbers = Variadic::new();
    let too_short = || mlua::Error::runtime("data string too short");
    for letter in &*format {
        numbers.push(match letter {
            b'<' => continue,
            b'B' => f64::from(*rest.split_off_first().ok_or_else(too_short)?),
            b'd' => {
                let (number, others) = rest.split_first_chunk().ok_or_else(too_short)?;
                rest = others;
                f64::from_le_bytes(*number)
            }
            _ => return Err(mlua::Error::runtime("the host unpacks only bytes and doubles")),
        });
    }
    // Where the next one would begin.
    numbers.push((packed.len() - rest.len() + 1) as f64);
    Ok(numbers)
}

/// An argument of a command, as the server reads it.
#[derive(Default)]
enum Text {
    #[default]
    Missing,
    Given(BorrowedBytes),
    Digits(Digits),
    Converted(String),
}

impl Text {
    fn of(lua: &Lua, value: &Value) -> mlua::Result<Text> {
        /// Up to which `%.17g` writes all digits of a whole number.
        const ALL_DIGITS: i64 = 100_000_000_000_000_000;
        match value {
            Value::String(text) => Ok(Text::Given(text.as_bytes())),
            Value::Integer(number) if number.abs() < ALL_DIGITS => Ok(Text::Digits(Digits::of(*number))),
            Value::Integer(_) | Value::Number(_) => {
                let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
                Ok(Text::Converted(format.call(("%.17g", value))?))
            }
            _ => Err(mlua::Error::runtime("ERR Lua redis lib command arguments must be strings or integers")),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Text::Missing => &[],
            Text::Given(bytes) => bytes,
            Text::Digits(digits) => digits.bytes(),
            Text::Converted(text) => text.as_bytes(),
        }
    }
}

/// A whole number in decimal, without an allocation.
struct Digits {
    buffer: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(number: i64) -> Digits {
        let mut digits = Digits { buffer: [b'0'; 20], start: 20 };
        let mut rest = number.unsigned_abs();
        while rest > 0 || digits.start == 20 {
            digits.start -= 1;
            digits.buffer[digits.start] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        if number < 0 {
            digits.start -= 1;
            digits.buffer[digits.start] = b'-';
        }
        digits
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

/// What the script returns, as it goes to the client: numbers are cut to
/// integers, and an array ends where there is nothing.
fn to_protocol(value: &Value) -> mlua::Result<redis::Value> {
    Ok(match value {
        Value::Nil | Value::Boolean(false) => redis::Value::Nil,
        Value::Boolean(true) => redis::Value::Int(1),
        Value::Integer(number) => redis::Value::Int(*number),
        Value::Number(number) => redis::Value::Int(*number as i64),
        Value::String(text) => redis::Value::BulkString(text.as_bytes().to_vec()),
        Value::Table(table) => {
            if let Value::String(error) = table.raw_get("err")? {
                return Err(mlua::Error::runtime(error.to_string_lossy()));
            }
            let mut values = Vec::with_capacity(4);
            loop {
                match table.raw_get(values.len() + 1)? {
                    Value::Nil => break redis::Value::Array(values),
                    value => values.push(to_protocol(&value)?),
                }
            }
        }
        _ => return Err(mlua::Error::runtime("a script returned what has no place in a reply")),
    })
}

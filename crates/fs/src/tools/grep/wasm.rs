//! An automaton as a WebAssembly module: a few hundred bytes of code, and its table as data.
//!
//! The module imports nothing but its memory and has one entry, `scan`. It is told at
//! [`SCAN_PARAMS`](crate::protocol::SCAN_PARAMS) where whole lines lie, and writes of each line
//! that matches the address of one of its bytes.

use super::automaton::{LEAVES, LineAutomaton, RequiredBytes};
use crate::protocol::{SCAN_ENTRY, SCAN_PARAMS, SCAN_PARAMS_LEN};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, EntityType, ExportKind, ExportSection,
    Function, FunctionSection, ImportSection, InstructionSink, MemArg, MemoryType, Module,
    TypeSection, ValType,
};

const LITERAL: u32 = SCAN_PARAMS + SCAN_PARAMS_LEN;
const MASKS: u32 = LITERAL + 64;
const CLASSES: u32 = MASKS + 64;
const ROWS: u32 = CLASSES + 512;
/// Pages of the memory that every module here has.
const PAGES: u64 = 16;
/// Bytes of a number of the table.
const CELL: u32 = 4;

// Locals.
const AT: u32 = 0;
const END: u32 = 1;
const STATE: u32 = 2;
const OUT: u32 = 3;
const LIMIT: u32 = 4;
const HIT: u32 = 5;
const BITS: u32 = 6;
const INDEX: u32 = 7;
const FLOOR: u32 = 8;
const BYTE: u32 = 9;
const LOCALS: u32 = 10;

/// A module that finds the lines of a pattern.
pub(super) fn module(automaton: &LineAutomaton, required: Option<&RequiredBytes>) -> Vec<u8> {
    let (mut types, mut imports, mut functions) =
        (TypeSection::new(), ImportSection::new(), FunctionSection::new());
    types.ty().function([], [ValType::I64]);
    let memory = MemoryType {
        minimum: PAGES,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    };
    imports.import("env", "memory", EntityType::Memory(memory));
    functions.function(0);
    let (mut exports, mut code, mut data) =
        (ExportSection::new(), CodeSection::new(), DataSection::new());
    exports.export(SCAN_ENTRY, ExportKind::Func, 0);
    code.function(&body(automaton, required));
    data.active(0, &ConstExpr::i32_const(SCAN_PARAMS.cast_signed()), image(automaton, required));
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports);
    module.section(&code).section(&data);
    module.finish()
}

/// The module's data: room for parameters, the literal, classes, rows.
fn image(automaton: &LineAutomaton, required: Option<&RequiredBytes>) -> Vec<u8> {
    let mut bytes = vec![0; SCAN_PARAMS_LEN as usize + 128];
    if let Some(required) = required {
        let at = SCAN_PARAMS_LEN as usize;
        bytes[at..at + required.bytes.len()].copy_from_slice(&required.bytes);
        bytes[at + 64..at + 64 + required.masks.len()].copy_from_slice(&required.masks);
    }
    for class in automaton.classes {
        bytes.extend_from_slice(&(u16::from(class) * 4).to_le_bytes());
    }
    for state in &automaton.rows {
        bytes.extend_from_slice(&row(automaton, usize::from(*state)).to_le_bytes());
    }
    bytes
}

/// Where a state's row begins in the table.
fn row(automaton: &LineAutomaton, state: usize) -> u32 {
    u32::try_from(state * automaton.class_count).unwrap_or(u32::MAX) * CELL
}

fn at(offset: u32, align: u32) -> MemArg {
    MemArg { offset: offset.into(), align, memory_index: 0 }
}

fn body(automaton: &LineAutomaton, required: Option<&RequiredBytes>) -> Function {
    let mut function = Function::new([(LOCALS, ValType::I32)]);
    let mut code = function.instructions();
    begin(&mut code);
    code.block(BlockType::Empty); // over: 0, within the lines 1
    code.loop_(BlockType::Empty);
    code.local_get(AT).local_get(END).i32_ge_u().br_if(1);
    code.local_get(OUT).local_get(LIMIT).i32_ge_u().br_if(1);
    if let Some(required) = required {
        find_literal(&mut code, required);
    }
    match required {
        Some(RequiredBytes { is_all: true, .. }) => {
            code.local_get(HIT).local_set(AT);
        }
        required => run(&mut code, automaton, required.is_some()),
    }
    found(&mut code);
    code.br(0).end().end();
    end(&mut code);
    code.end();
    function
}

/// Takes the parameters.
fn begin(code: &mut InstructionSink<'_>) {
    for (place, local) in [(0, AT), (4, END), (8, OUT), (12, LIMIT)] {
        code.i32_const(0).i32_load(at(SCAN_PARAMS + place, 2)).local_set(local);
    }
    code.i32_const(0).i32_const(0).i32_store(at(SCAN_PARAMS + 4, 2));
}

/// Says how far it has come, and returns where what it has found ends.
fn end(code: &mut InstructionSink<'_>) {
    code.i32_const(0).local_get(AT).i32_store(at(SCAN_PARAMS, 2));
    code.local_get(OUT).i64_extend_i32_u();
}

/// Tells the line that `AT` is in, and goes behind its end.
fn found(code: &mut InstructionSink<'_>) {
    code.local_get(OUT).local_get(AT).i32_store(at(0, 2));
    code.local_get(OUT).i32_const(4).i32_add().local_set(OUT);
    code.loop_(BlockType::Empty);
    code.local_get(AT).i32_load8_u(at(0, 0));
    code.local_get(AT).i32_const(1).i32_add().local_set(AT);
    code.i32_const(b'\n'.into()).i32_ne().br_if(0).end();
}

/// Runs the automaton from `AT` until a line matches, whose byte `AT` then is at. A line in which a
/// literal was found is alone: behind it the next one is looked for.
fn run(code: &mut InstructionSink<'_>, automaton: &LineAutomaton, is_alone: bool) {
    let special = row(automaton, LEAVES + 1).cast_signed();
    code.i32_const(row(automaton, automaton.start).cast_signed()).local_set(STATE);
    code.block(BlockType::Empty).loop_(BlockType::Empty); // over is 3, lines 2
    if !is_alone {
        code.local_get(AT).local_get(END).i32_ge_u().br_if(3);
    }
    code.local_get(AT).i32_load8_u(at(0, 0)).local_tee(BYTE);
    code.i32_const(1).i32_shl().i32_load16_u(at(CLASSES, 1));
    code.local_get(STATE).i32_add().i32_load(at(ROWS, 2)).local_set(STATE);
    code.local_get(STATE).i32_const(special).i32_lt_u().br_if(1);
    code.local_get(AT).i32_const(1).i32_add().local_set(AT);
    if is_alone {
        code.local_get(BYTE).i32_const(b'\n'.into()).i32_ne().br_if(0).br(2);
    } else {
        code.br(0);
    }
    code.end().end();
    code.local_get(STATE).i32_const(row(automaton, LEAVES).cast_signed()).i32_eq();
    code.if_(BlockType::Empty);
    code.i32_const(0).i32_const(1).i32_store(at(SCAN_PARAMS + 4, 2)).br(2).end();
}

/// How often a byte is in text and programs, about: the rarest ones are looked for.
fn frequency(byte: u8) -> u32 {
    match byte {
        b' ' => 255,
        b'e' | b't' | b'a' | b'i' | b'n' | b'o' | b'r' | b's' => 200,
        b'l' | b'c' | b'd' | b'u' | b'm' | b'p' | b'f' | b'h' => 150,
        b'a'..=b'z' => 90,
        b'_' | b'(' | b')' | b',' | b'.' | b';' | b'=' | b'-' | b'"' | b'/' | b'*' => 80,
        b'0'..=b'9' => 60,
        b'A'..=b'Z' => 40,
        _ => 20,
    }
}

/// Two places of a literal that are looked at first.
fn rarest(required: &RequiredBytes) -> (usize, usize) {
    let mut places: Vec<usize> = (0..required.bytes.len()).collect();
    places.sort_by_key(|place| frequency(required.bytes[*place]));
    let first = places.first().copied().unwrap_or(0);
    (first, places.get(1).copied().unwrap_or(first))
}

/// Looks for the literal from `AT` on, 16 places at a time; `HIT` is where it is, and `AT` where
/// its line begins. Without one it ends. Bytes behind the lines are read, and what is found there
/// does not count: no literal crosses a line's end.
fn find_literal(code: &mut InstructionSink<'_>, required: &RequiredBytes) {
    let (first, second) = rarest(required);
    code.local_get(AT).local_tee(FLOOR).local_set(HIT);
    code.local_get(AT).local_set(INDEX);
    code.block(BlockType::Empty).loop_(BlockType::Empty); // blocks 0, found 1, lines 2, over 3
    code.local_get(INDEX).local_get(END).i32_ge_u().if_(BlockType::Empty);
    code.local_get(END).local_set(AT).br(4).end();
    compare(code, required, first);
    if second != first {
        compare(code, required, second);
        code.v128_and();
    }
    code.i8x16_bitmask().local_set(BITS);
    code.block(BlockType::Empty).loop_(BlockType::Empty); // bits 0, next 1, blocks 2, found 3
    code.local_get(BITS).i32_eqz().br_if(1);
    code.local_get(INDEX).local_get(BITS).i32_ctz().i32_add().local_set(HIT);
    code.local_get(HIT).local_get(END).i32_ge_u().br_if(1);
    verify(code, required, (first, second));
    code.local_get(BITS).local_get(BITS).i32_const(1).i32_sub().i32_and().local_set(BITS);
    code.br(0).end().end();
    code.local_get(INDEX).i32_const(16).i32_add().local_set(INDEX);
    code.br(0).end().end();
    if !required.is_all {
        back_to_line(code);
    }
}

/// Which of 16 places have the literal's byte of this place.
fn compare(code: &mut InstructionSink<'_>, required: &RequiredBytes, place: usize) {
    let offset = u32::try_from(place).unwrap_or(0);
    code.local_get(INDEX).v128_load(at(offset, 0));
    if required.masks[place] != 0 {
        code.i32_const(required.masks[place].into()).i8x16_splat().v128_or();
    }
    code.i32_const(required.bytes[place].into()).i8x16_splat().i8x16_eq();
}

/// Ends the search if the whole literal is at `HIT`.
fn verify(code: &mut InstructionSink<'_>, required: &RequiredBytes, seen: (usize, usize)) {
    if (0..required.bytes.len()).all(|place| place == seen.0 || place == seen.1) {
        code.br(3);
        return;
    }
    let len = i32::try_from(required.bytes.len()).unwrap_or(0);
    code.i32_const(0).local_set(BYTE);
    code.block(BlockType::Empty).loop_(BlockType::Empty); // bytes 0, differs 1, found 5
    code.local_get(HIT).local_get(BYTE).i32_add().i32_load8_u(at(0, 0));
    code.local_get(BYTE).i32_load8_u(at(MASKS, 0)).i32_or();
    code.local_get(BYTE).i32_load8_u(at(LITERAL, 0)).i32_ne().br_if(1);
    code.local_get(BYTE).i32_const(1).i32_add().local_tee(BYTE);
    code.i32_const(len).i32_lt_u().br_if(0);
    code.br(5).end().end();
}

/// Puts `AT` to where the line of `HIT` begins.
fn back_to_line(code: &mut InstructionSink<'_>) {
    code.local_get(HIT).local_set(AT);
    code.block(BlockType::Empty).loop_(BlockType::Empty);
    code.local_get(AT).local_get(FLOOR).i32_le_u().br_if(1);
    code.local_get(AT).i32_const(1).i32_sub().i32_load8_u(at(0, 0));
    code.i32_const(b'\n'.into()).i32_eq().br_if(1);
    code.local_get(AT).i32_const(1).i32_sub().local_set(AT).br(0).end().end();
}

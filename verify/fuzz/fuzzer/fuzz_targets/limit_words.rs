#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_fuzz::limit_words(input));

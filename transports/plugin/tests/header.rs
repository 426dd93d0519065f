//! The interface as C has it, and as Rust has it.

use petasos_plugin::table::{
    LISTENER, Library, MAGIC, Opened, Ready, Room, Status, Table, Text, VERSION,
};
use petasos_testing::ask_the_headers;
use std::mem::offset_of;

macro_rules! facts {
    ($($type:ident as $name:ident: $($field:ident)+;)+) => {
        vec![$(
            (format!("sizeof(struct {})", stringify!($name)), size_of::<$type>()),
            $((
                format!("offsetof(struct {}, {})", stringify!($name), stringify!($field)),
                offset_of!($type, $field),
            ),)+
        )+]
    };
}

#[test]
fn the_header_and_the_module_are_the_same() {
    let mut facts = facts! {
        Library as petasos_library: magic version table_size count reserved tables;
        Text as petasos_text: at len;
        Room as petasos_room: at capacity len;
        Opened as petasos_opened: endpoint fd max_packet;
        Ready as petasos_ready: line what;
        Table as petasos_table: scheme title any open close address connect accept send receive
            shut poll arm;
    };
    let mut number = |name: &str, value: u64| facts.push((name.to_owned(), value as usize));
    for (nth, byte) in MAGIC.into_iter().enumerate() {
        number(&format!("((uint8_t[8])PETASOS_MAGIC)[{nth}]"), byte.into());
    }
    number("PETASOS_VERSION", VERSION.into());
    number("PETASOS_LISTENER", LISTENER.into());
    number("PETASOS_READABLE", Ready::READABLE.into());
    number("PETASOS_WRITABLE", Ready::WRITABLE.into());
    number("sizeof(petasos_status)", size_of::<Status>() as u64);
    for (name, status) in [
        ("PETASOS_OK", Status::OK),
        ("PETASOS_LATER", Status::LATER),
        ("PETASOS_CLOSED", Status::CLOSED),
        ("PETASOS_REFUSED", Status::REFUSED),
        ("PETASOS_ERROR", Status::ERROR),
        ("PETASOS_PANICKED", Status::PANICKED),
    ] {
        number(name, status.0 as u64);
    }
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/include/petasos_transport.h");
    let answers = ask_the_headers(&[header], facts.iter().map(|(question, _)| question.as_str()));
    for ((question, expected), answer) in facts.iter().zip(answers) {
        assert_eq!(answer, *expected as u64, "{question}");
    }
}

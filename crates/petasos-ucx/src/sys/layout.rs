//! The layouts written down here against those of the headers, where these are installed.

use super::*;
use std::{
    io::Write,
    mem::{offset_of, size_of},
    path::Path,
    process::{Command, Stdio},
};

/// A line of the C program, and what it must print.
struct Fact(String, usize);

macro_rules! facts {
    ($($type:ident: $($field:ident),+;)+) => {
        vec![$($(Fact(
            format!("offsetof(struct {}, {})", stringify!($type), stringify!($field)),
            offset_of!($type, $field),
        ),)+)+]
    };
}

#[test]
fn layouts_are_those_of_the_headers() {
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        return petasos_testing::skip("the headers of UCX (package libucx-dev) are not here");
    }
    let mut facts = facts! {
        ucp_params: field_mask, features, mt_workers_shared;
        ucp_worker_params: field_mask, thread_mode, cpu_mask, events, user_data, event_fd, flags;
        ucp_am_handler_param: field_mask, id, flags, cb, arg;
        ucp_am_recv_param: recv_attr, reply_ep;
        ucp_ep_params: field_mask, address, err_mode, err_handler, user_data, flags, sockaddr, conn_request, name,
            local_sockaddr;
        ucp_err_handler: cb, arg;
        ucp_dt_iov: buffer, length;
        ucp_mem_map_params: field_mask, address, length, flags, prot, memory_type;
    };
    // This one has no name but that of its type.
    macro_rules! of_request {
        ($($field:ident),+) => {
            $(facts.push(Fact(
                format!("offsetof(ucp_request_param_t, {})", stringify!($field)),
                offset_of!(ucp_request_param, $field),
            ));)+
        };
    }
    of_request!(
        op_attr_mask,
        flags,
        request,
        cb,
        datatype,
        user_data,
        reply_buffer,
        memory_type,
        recv_info,
        memh
    );
    let mut whole = |name: &str, size| facts.push(Fact(format!("sizeof({name})"), size));
    whole("struct ucp_am_handler_param", size_of::<ucp_am_handler_param>());
    whole("struct ucp_dt_iov", size_of::<ucp_dt_iov>());
    whole("struct ucp_mem_map_params", size_of::<ucp_mem_map_params>());
    whole("ucp_request_param_t", size_of::<ucp_request_param>());
    whole("ucs_status_t", size_of::<ucs_status_t>());
    let mut constant = |name: &str, value: u64| {
        facts.push(Fact(format!("(size_t)(uint64_t){name}"), value as usize))
    };
    macro_rules! constants {
        ($($name:ident)+) => { $(constant(stringify!($name), $name as u64);)+ };
    }
    constants! {
        UCP_PARAM_FIELD_FEATURES UCP_PARAM_FIELD_MT_WORKERS_SHARED UCP_FEATURE_RMA UCP_FEATURE_WAKEUP UCP_FEATURE_AM
        UCP_WORKER_PARAM_FIELD_THREAD_MODE UCP_WORKER_PARAM_FIELD_FLAGS UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK
        UCS_THREAD_MODE_SERIALIZED UCP_AM_HANDLER_PARAM_FIELD_ID UCP_AM_HANDLER_PARAM_FIELD_FLAGS
        UCP_AM_HANDLER_PARAM_FIELD_CB UCP_AM_HANDLER_PARAM_FIELD_ARG UCP_AM_FLAG_WHOLE_MSG
        UCP_AM_RECV_ATTR_FLAG_DATA UCP_AM_RECV_ATTR_FLAG_RNDV UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE UCP_EP_PARAM_FIELD_ERR_HANDLER UCP_ERR_HANDLING_MODE_NONE
        UCP_ERR_HANDLING_MODE_PEER UCP_OP_ATTR_FIELD_CALLBACK UCP_OP_ATTR_FIELD_USER_DATA
        UCP_OP_ATTR_FIELD_DATATYPE UCP_OP_ATTR_FIELD_FLAGS UCP_AM_SEND_FLAG_EAGER UCP_EP_CLOSE_FLAG_FORCE
        UCP_DATATYPE_IOV UCP_MEM_MAP_PARAM_FIELD_ADDRESS UCP_MEM_MAP_PARAM_FIELD_LENGTH UCS_OK UCS_INPROGRESS
        UCS_ERR_NO_RESOURCE UCS_ERR_NO_MEMORY UCS_ERR_UNREACHABLE UCS_ERR_EXCEEDS_LIMIT UCS_ERR_LAST
    }
    for (fact, found) in facts.iter().zip(ask(&facts)) {
        assert_eq!(found, fact.1, "{}", fact.0);
    }
}

/// What a C compiler says.
fn ask(facts: &[Fact]) -> Vec<usize> {
    let mut source = String::from("#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n");
    source += "#include <ucp/api/ucp.h>\n";
    source += "int main(void) {\n";
    for Fact(fact, _) in facts {
        source += &format!("  printf(\"%zu\\n\", (size_t)({fact}));\n");
    }
    source += "  return 0;\n}\n";
    let program = std::env::temp_dir().join(format!("petasos-ucx-layout-{}", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-w", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler, where headers are");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    assert!(compiler.wait().expect("it ends").success(), "the headers compile");
    let output = Command::new(&program).output().expect("it runs");
    let _ = std::fs::remove_file(&program);
    let lines = String::from_utf8(output.stdout).expect("numbers");
    lines.lines().map(|line| line.parse().expect("a number")).collect()
}

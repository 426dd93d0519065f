//! The layouts written down here against those of the headers, where these are installed.

use super::*;
use petasos_testing::ask_the_headers;
use std::{
    mem::{offset_of, size_of},
    path::Path,
};

/// An expression of C, and what its value must be.
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
        UCS_ERR_NO_RESOURCE UCS_ERR_NO_MEMORY UCS_ERR_INVALID_PARAM UCS_ERR_UNREACHABLE UCS_ERR_EXCEEDS_LIMIT UCS_ERR_LAST
    }
    let found = ask_the_headers(&["ucp/api/ucp.h"], facts.iter().map(|fact| &*fact.0));
    for (fact, found) in facts.iter().zip(found) {
        assert_eq!(found, fact.1 as u64, "{}", fact.0);
    }
}

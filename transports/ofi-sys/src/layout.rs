//! The layouts written down here against those of the headers, where these are installed.

use super::*;
use petasos_testing::ask_the_headers;
use std::{
    mem::{offset_of, size_of},
    path::Path,
};

const HEADERS: [&str; 11] = [
    "rdma/fabric.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_eq.h",
    "rdma/fi_cm.h",
    "rdma/fi_rma.h",
    "rdma/fi_tagged.h",
    "rdma/fi_errno.h",
    "rdma/fi_atomic.h",
    "rdma/providers/fi_prov.h",
    "rdma/providers/fi_log.h",
];

/// An expression of C, and what its value must be.
struct Fact(String, usize);

macro_rules! facts {
    ($($type:ident: $($field:ident),+;)+) => {
        vec![$($(Fact(
            format!(
                "offsetof(struct {}, {})",
                stringify!($type),
                stringify!($field).trim_start_matches("r#")
            ),
            offset_of!($type, $field),
        ),)+)+]
    };
}

#[test]
fn layouts_are_those_of_the_headers() {
    if !Path::new("/usr/include/rdma/fi_domain.h").exists() {
        return petasos_testing::skip(
            "the headers of libfabric (package libfabric-dev) are not here",
        );
    }
    let mut facts = facts! {
        fi_info: next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr,
            handle, tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, nic;
        fi_tx_attr: caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit,
            rma_iov_limit, tclass;
        fi_rx_attr: caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size,
            iov_limit;
        fi_ep_attr: r#type, protocol, protocol_version, max_msg_size, msg_prefix_size,
            max_order_raw_size, max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt,
            rx_ctx_cnt, auth_key_size, auth_key;
        fi_domain_attr: domain, name, threading, control_progress, data_progress, resource_mgmt,
            av_type, mr_mode, mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt,
            max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit,
            caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass;
        fi_fabric_attr: fabric, name, prov_name, prov_version, api_version;
        fid: fclass, context, ops;
        fi_ops: size, close, bind, control, ops_open, tostr, ops_set;
        fid_fabric: fid, ops, api_version;
        fi_ops_fabric: size, domain, passive_ep, eq_open, wait_open, trywait, domain2;
        fi_eq_attr: size, flags, wait_obj, signaling_vector, wait_set;
        fid_eq: fid, ops;
        fi_eq_entry: fid, context, data;
        fi_eq_err_entry: fid, context, data, err, prov_errno, err_data, err_data_size;
        fi_ops_eq: size, read, readerr, write, sread, strerror;
        fid_domain: fid, ops, mr;
        fi_ops_domain: size, av_open, cq_open, endpoint, scalable_ep, cntr_open, poll_open, stx_ctx,
            srx_ctx, query_atomic, query_collective, endpoint2;
        fi_atomic_attr: count, size;
        fi_ops_mr: size, reg, regv, regattr;
        fi_mr_attr: mr_iov, iov_count, access, offset, requested_key, context, auth_key_size,
            auth_key, iface, device;
        fid_mr: fid, mem_desc, key;
        fi_av_attr: r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags;
        fid_av: fid, ops;
        fi_ops_av: size, insert, insertsvc, insertsym, remove, lookup, straddr, av_set;
        fi_cq_attr: size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set;
        fid_cq: fid, ops;
        fi_ops_cq: size, read, readfrom, readerr, sread, sreadfrom, signal, strerror;
        fi_cntr_attr: events, wait_obj, wait_set, flags;
        fid_cntr: fid, ops;
        fi_ops_cntr: size, read, readerr, add, set, wait, adderr, seterr;
        fi_cq_data_entry: op_context, flags, len, buf, data;
        fi_cq_tagged_entry: op_context, flags, len, buf, data, tag;
        fi_cq_err_entry: op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data,
            err_data_size;
        fi_msg: msg_iov, desc, iov_count, addr, context, data;
        fid_ep: fid, ops, cm, msg, rma, tagged, atomic, collective;
        fi_ops_ep: size, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left;
        fi_ops_cm: size, setname, getname, getpeer, connect, listen, accept, reject, shutdown, join;
        fi_ops_msg: size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata, injectdata;
        fi_msg_tagged: msg_iov, desc, iov_count, addr, tag, ignore, context, data;
        fi_ops_tagged: size, recv, recvv, recvmsg, send, sendv, sendmsg, inject, senddata,
            injectdata;
        fi_rma_iov: addr, len, key;
        fi_msg_rma: msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data;
        fi_ops_rma: size, read, readv, readmsg, write, writev, writemsg, inject, writedata,
            injectdata;
        fi_ioc: addr, count;
        fi_rma_ioc: addr, count, key;
        fi_msg_atomic: msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op,
            context, data;
        fi_ops_atomic: size, write, writev, writemsg, inject, readwrite, readwritev, readwritemsg,
            compwrite, compwritev, compwritemsg, writevalid, readwritevalid, compwritevalid;
        fi_provider: version, fi_version, context, name, getinfo, fabric, cleanup;
    };
    let mut whole = |name: &str, size| facts.push(Fact(format!("sizeof(struct {name})"), size));
    whole("fi_cq_data_entry", size_of::<fi_cq_data_entry>());
    whole("fi_eq_entry", size_of::<fi_eq_entry>());
    whole("fi_eq_err_entry", size_of::<fi_eq_err_entry>());
    whole("fi_cq_attr", size_of::<fi_cq_attr>());
    whole("fi_av_attr", size_of::<fi_av_attr>());
    whole("fi_msg", size_of::<fi_msg>());
    whole("fi_rma_iov", size_of::<fi_rma_iov>());
    whole("fi_msg_rma", size_of::<fi_msg_rma>());
    let mut constant =
        |name: &str, value: u64| facts.push(Fact(format!("(size_t){name}"), value as usize));
    for (name, value) in [
        ("FI_ADDR_UNSPEC", FI_ADDR_UNSPEC),
        ("FI_MSG", FI_MSG),
        ("FI_RMA", FI_RMA),
        ("FI_TAGGED", FI_TAGGED),
        ("FI_ATOMIC", FI_ATOMIC),
        ("FI_READ", FI_READ),
        ("FI_WRITE", FI_WRITE),
        ("FI_RECV", FI_RECV),
        ("FI_SEND", FI_SEND),
        ("FI_REMOTE_READ", FI_REMOTE_READ),
        ("FI_REMOTE_WRITE", FI_REMOTE_WRITE),
        ("FI_MULTI_RECV", FI_MULTI_RECV),
        ("FI_REMOTE_CQ_DATA", FI_REMOTE_CQ_DATA),
        ("FI_MORE", FI_MORE),
        ("FI_PEEK", FI_PEEK),
        ("FI_TRIGGER", FI_TRIGGER),
        ("FI_FENCE", FI_FENCE),
        ("FI_COMPLETION", FI_COMPLETION),
        ("FI_EVENT", FI_EVENT),
        ("FI_INJECT", FI_INJECT),
        ("FI_INJECT_COMPLETE", FI_INJECT_COMPLETE),
        ("FI_TRANSMIT_COMPLETE", FI_TRANSMIT_COMPLETE),
        ("FI_DELIVERY_COMPLETE", FI_DELIVERY_COMPLETE),
        ("FI_COMMIT_COMPLETE", FI_COMMIT_COMPLETE),
        ("FI_MATCH_COMPLETE", FI_MATCH_COMPLETE),
        ("FI_DISCARD", FI_DISCARD),
        ("FI_CLAIM", FI_CLAIM),
        ("FI_FETCH_ATOMIC", FI_FETCH_ATOMIC),
        ("FI_COMPARE_ATOMIC", FI_COMPARE_ATOMIC),
        ("FI_SELECTIVE_COMPLETION", FI_SELECTIVE_COMPLETION),
        ("FI_SYMMETRIC", FI_SYMMETRIC),
        ("FI_SYNC_ERR", FI_SYNC_ERR),
        ("FI_LOCAL_COMM", FI_LOCAL_COMM),
        ("FI_REMOTE_COMM", FI_REMOTE_COMM),
        ("FI_PROV_ATTR_ONLY", FI_PROV_ATTR_ONLY),
        ("FI_DIRECTED_RECV", FI_DIRECTED_RECV),
        ("FI_NUMERICHOST", FI_NUMERICHOST),
        ("FI_TRANSMIT", FI_TRANSMIT),
        ("FI_SOURCE", FI_SOURCE),
        ("FI_CONTEXT", FI_CONTEXT),
        ("FI_CONTEXT2", FI_CONTEXT2),
        ("FI_MR_BASIC", FI_MR_BASIC as u64),
        ("FI_MR_SCALABLE", FI_MR_SCALABLE as u64),
        ("FI_MR_VIRT_ADDR", FI_MR_VIRT_ADDR as u64),
        ("FI_MR_ALLOCATED", FI_MR_ALLOCATED as u64),
        ("FI_MR_PROV_KEY", FI_MR_PROV_KEY as u64),
        ("FI_MR_ENDPOINT", FI_MR_ENDPOINT as u64),
        ("FI_ORDER_SAS", FI_ORDER_SAS),
        ("FI_ORDER_ATOMIC_RAR", FI_ORDER_ATOMIC_RAR),
        ("FI_ORDER_ATOMIC_RAW", FI_ORDER_ATOMIC_RAW),
        ("FI_ORDER_ATOMIC_WAR", FI_ORDER_ATOMIC_WAR),
        ("FI_ORDER_ATOMIC_WAW", FI_ORDER_ATOMIC_WAW),
        ("FI_PROV_SPECIFIC", FI_PROV_SPECIFIC as u64),
        ("FI_NAME_MAX", FI_NAME_MAX as u64),
        ("FI_FORMAT_UNSPEC", FI_FORMAT_UNSPEC as u64),
        ("FI_SOCKADDR", FI_SOCKADDR as u64),
        ("FI_SOCKADDR_IN", FI_SOCKADDR_IN as u64),
        ("FI_SOCKADDR_IN6", FI_SOCKADDR_IN6 as u64),
        ("FI_ADDR_STR", FI_ADDR_STR as u64),
        ("FI_AV_COMPLETE", FI_AV_COMPLETE as u64),
        ("FI_EP_UNSPEC", FI_EP_UNSPEC as u64),
        ("FI_EP_RDM", FI_EP_RDM as u64),
        ("FI_THREAD_SAFE", FI_THREAD_SAFE as u64),
        ("FI_PROGRESS_AUTO", FI_PROGRESS_AUTO as u64),
        ("FI_PROGRESS_MANUAL", FI_PROGRESS_MANUAL as u64),
        ("FI_AV_MAP", FI_AV_MAP as u64),
        ("FI_CQ_FORMAT_UNSPEC", FI_CQ_FORMAT_UNSPEC as u64),
        ("FI_CQ_FORMAT_CONTEXT", FI_CQ_FORMAT_CONTEXT as u64),
        ("FI_CQ_FORMAT_MSG", FI_CQ_FORMAT_MSG as u64),
        ("FI_CQ_FORMAT_TAGGED", FI_CQ_FORMAT_TAGGED as u64),
        ("FI_WAIT_UNSPEC", FI_WAIT_UNSPEC as u64),
        ("FI_WAIT_YIELD", FI_WAIT_YIELD as u64),
        ("FI_CQ_COND_NONE", FI_CQ_COND_NONE as u64),
        ("FI_CNTR_EVENTS_COMP", FI_CNTR_EVENTS_COMP as u64),
        ("FI_GETOPSFLAG", FI_GETOPSFLAG as u64),
        ("FI_SETOPSFLAG", FI_SETOPSFLAG as u64),
        ("FI_GETWAITOBJ", FI_GETWAITOBJ as u64),
        ("FI_TC_UNSPEC", FI_TC_UNSPEC as u64),
        ("FI_LOG_WARN", FI_LOG_WARN as u64),
        ("FI_LOG_INFO", FI_LOG_INFO as u64),
        ("FI_LOG_CORE", FI_LOG_CORE as u64),
        ("FI_CLASS_FABRIC", FI_CLASS_FABRIC as u64),
        ("FI_CLASS_DOMAIN", FI_CLASS_DOMAIN as u64),
        ("FI_CLASS_EP", FI_CLASS_EP as u64),
        ("FI_CLASS_AV", FI_CLASS_AV as u64),
        ("FI_CLASS_MR", FI_CLASS_MR as u64),
        ("FI_CLASS_EQ", FI_CLASS_EQ as u64),
        ("FI_CLASS_CQ", FI_CLASS_CQ as u64),
        ("FI_CLASS_CNTR", FI_CLASS_CNTR as u64),
        ("FI_INT8", FI_INT8 as u64),
        ("FI_UINT8", FI_UINT8 as u64),
        ("FI_INT16", FI_INT16 as u64),
        ("FI_UINT16", FI_UINT16 as u64),
        ("FI_INT32", FI_INT32 as u64),
        ("FI_UINT32", FI_UINT32 as u64),
        ("FI_INT64", FI_INT64 as u64),
        ("FI_UINT64", FI_UINT64 as u64),
        ("FI_FLOAT", FI_FLOAT as u64),
        ("FI_DOUBLE", FI_DOUBLE as u64),
        ("FI_MIN", FI_MIN as u64),
        ("FI_MAX", FI_MAX as u64),
        ("FI_SUM", FI_SUM as u64),
        ("FI_PROD", FI_PROD as u64),
        ("FI_LOR", FI_LOR as u64),
        ("FI_LAND", FI_LAND as u64),
        ("FI_BOR", FI_BOR as u64),
        ("FI_BAND", FI_BAND as u64),
        ("FI_LXOR", FI_LXOR as u64),
        ("FI_BXOR", FI_BXOR as u64),
        ("FI_ATOMIC_READ", FI_ATOMIC_READ as u64),
        ("FI_ATOMIC_WRITE", FI_ATOMIC_WRITE as u64),
        ("FI_CSWAP", FI_CSWAP as u64),
        ("FI_THREAD_DOMAIN", FI_THREAD_DOMAIN as u64),
        ("FI_RM_ENABLED", FI_RM_ENABLED as u64),
        ("FI_AV_TABLE", FI_AV_TABLE as u64),
        ("FI_CQ_FORMAT_DATA", FI_CQ_FORMAT_DATA as u64),
        ("FI_WAIT_NONE", FI_WAIT_NONE as u64),
        ("FI_WAIT_FD", FI_WAIT_FD as u64),
        ("FI_GETWAIT", FI_GETWAIT as u64),
        ("FI_ENABLE", FI_ENABLE as u64),
        ("FI_OPT_ENDPOINT", FI_OPT_ENDPOINT as u64),
        ("FI_OPT_MIN_MULTI_RECV", FI_OPT_MIN_MULTI_RECV as u64),
        ("FI_EAGAIN", FI_EAGAIN as u64),
        ("FI_ECANCELED", FI_ECANCELED as u64),
        ("FI_ETOOSMALL", FI_ETOOSMALL as u64),
        ("FI_EOPBADSTATE", FI_EOPBADSTATE as u64),
        ("FI_EOTHER", FI_EOTHER as u64),
        ("FI_EBADFLAGS", FI_EBADFLAGS as u64),
        ("FI_ENOEQ", FI_ENOEQ as u64),
        ("FI_EDOMAIN", FI_EDOMAIN as u64),
        ("FI_ENOCQ", FI_ENOCQ as u64),
        ("FI_ETRUNC", FI_ETRUNC as u64),
        ("FI_ENOKEY", FI_ENOKEY as u64),
        ("FI_ENOAV", FI_ENOAV as u64),
        ("FI_EAVAIL", FI_EAVAIL as u64),
    ] {
        constant(name, value);
    }
    let found = ask_the_headers(&HEADERS, facts.iter().map(|fact| &*fact.0));
    for (fact, found) in facts.iter().zip(found) {
        assert_eq!(found, fact.1 as u64, "{}", fact.0);
    }
    // Of the errors, which the library fills in, the headers may know more than we do; never more
    // than the slack.
    let theirs = ask_the_headers(&HEADERS, ["sizeof(struct fi_cq_err_entry)"])[0];
    assert!(theirs <= size_of::<fi_cq_err_entry>() as u64);
}

//! The layouts written down here against those of the headers, where these are installed.

use super::*;
use petasos_testing::ask_the_headers;
use std::{
    mem::{offset_of, size_of},
    path::Path,
};

const HEADERS: [&str; 8] = [
    "rdma/fabric.h",
    "rdma/fi_domain.h",
    "rdma/fi_endpoint.h",
    "rdma/fi_eq.h",
    "rdma/fi_cm.h",
    "rdma/fi_rma.h",
    "rdma/fi_tagged.h",
    "rdma/fi_errno.h",
];

/// An expression of C, and what its value must be.
struct Fact(String, usize);

macro_rules! facts {
    ($($type:ident: $($field:ident),+;)+) => {
        vec![$($(Fact(
            format!("offsetof(struct {}, {})", stringify!($type), stringify!($field).trim_start_matches("r#")),
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
        fi_info: next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr,
            rx_attr, ep_attr, domain_attr, fabric_attr, nic;
        fi_tx_attr: caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass;
        fi_rx_attr: caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit;
        fi_ep_attr: r#type, protocol, protocol_version, max_msg_size, msg_prefix_size;
        fi_domain_attr: domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode,
            mr_key_size, cq_data_size;
        fi_fabric_attr: fabric, name, prov_name, prov_version, api_version;
        fid: fclass, context, ops;
        fi_ops: size, close, bind, control;
        fid_fabric: fid, ops, api_version;
        fi_ops_fabric: size, domain, trywait;
        fid_domain: fid, ops, mr;
        fi_ops_domain: size, av_open, cq_open, endpoint;
        fi_ops_mr: size, reg;
        fid_mr: fid, mem_desc, key;
        fi_av_attr: r#type, rx_ctx_bits, count, ep_per_node, name, map_addr, flags;
        fid_av: fid, ops;
        fi_ops_av: size, insert, remove;
        fi_cq_attr: size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set;
        fid_cq: fid, ops;
        fi_ops_cq: size, read, readerr;
        fi_cq_data_entry: op_context, flags, len, buf, data;
        fi_cq_err_entry: op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size;
        fi_msg: msg_iov, desc, iov_count, addr, context, data;
        fid_ep: fid, ops, cm, msg, rma;
        fi_ops_ep: size, cancel, setopt;
        fi_ops_cm: size, setname, getname;
        fi_ops_msg: size, recvmsg, send, sendmsg, inject;
        fi_rma_iov: addr, len, key;
        fi_msg_rma: msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data;
        fi_ops_rma: size, readmsg, writemsg;
    };
    let mut whole = |name: &str, size| facts.push(Fact(format!("sizeof(struct {name})"), size));
    whole("fi_cq_data_entry", size_of::<fi_cq_data_entry>());
    whole("fi_cq_attr", size_of::<fi_cq_attr>());
    whole("fi_av_attr", size_of::<fi_av_attr>());
    whole("fi_msg", size_of::<fi_msg>());
    whole("fi_rma_iov", size_of::<fi_rma_iov>());
    whole("fi_msg_rma", size_of::<fi_msg_rma>());
    let mut constant =
        |name: &str, value: u64| facts.push(Fact(format!("(size_t){name}"), value as usize));
    for (name, value) in [
        ("FI_MSG", FI_MSG),
        ("FI_RMA", FI_RMA),
        ("FI_READ", FI_READ),
        ("FI_WRITE", FI_WRITE),
        ("FI_RECV", FI_RECV),
        ("FI_SEND", FI_SEND),
        ("FI_REMOTE_READ", FI_REMOTE_READ),
        ("FI_REMOTE_WRITE", FI_REMOTE_WRITE),
        ("FI_MULTI_RECV", FI_MULTI_RECV),
        ("FI_REMOTE_CQ_DATA", FI_REMOTE_CQ_DATA),
        ("FI_DELIVERY_COMPLETE", FI_DELIVERY_COMPLETE),
        ("FI_SOURCE", FI_SOURCE),
        ("FI_NUMERICHOST", FI_NUMERICHOST),
        ("FI_TRANSMIT", FI_TRANSMIT),
        ("FI_CONTEXT", FI_CONTEXT),
        ("FI_CONTEXT2", FI_CONTEXT2),
        ("FI_MR_VIRT_ADDR", FI_MR_VIRT_ADDR as u64),
        ("FI_MR_ALLOCATED", FI_MR_ALLOCATED as u64),
        ("FI_MR_PROV_KEY", FI_MR_PROV_KEY as u64),
        ("FI_MR_ENDPOINT", FI_MR_ENDPOINT as u64),
        ("FI_ORDER_SAS", FI_ORDER_SAS),
        ("FI_EP_RDM", FI_EP_RDM as u64),
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
        ("FI_EAVAIL", FI_EAVAIL as u64),
        ("FI_ECANCELED", FI_ECANCELED as u64),
        ("FI_ETRUNC", FI_ETRUNC as u64),
        ("FI_ADDR_UNSPEC", FI_ADDR_UNSPEC),
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

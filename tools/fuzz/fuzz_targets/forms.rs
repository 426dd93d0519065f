//! What peers say in UCX's forms, before UCX reads it: addresses of workers and keys of memory,
//! compared with those of this endpoint, of whichever version and transports.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fuzz::Cut;
use petasos_ucx::form::{AddressForm, KeyForm};

fuzz_target!(|data: &[u8]| {
    let mut cut = Cut(data);
    let choice = cut.u8();
    let own = usize::from(cut.u8()).min(cut.0.len());
    let (own, theirs) = cut.0.split_at(own);
    if choice & 1 == 0 {
        if let Some(form) = KeyForm::of(own) {
            assert!(form.fits(own));
            if form.fits(theirs) {
                // Nothing steers but what is the same in both.
                assert_eq!(own.len(), theirs.len());
                assert_eq!(own[..9], theirs[..9]);
            }
        }
        return;
    }
    let transports = ["tcp", "posix", "sysv", "posix,cma", "ib"][usize::from(choice >> 1) % 5];
    for minor in [13, 18, 22, 30] {
        if let Some(form) = AddressForm::of(own, transports, minor) {
            assert_eq!(form.check(own), Ok(()));
            if form.check(theirs).is_ok() && own != theirs {
                // One byte less, or more, is another form.
                assert!(form.check(&theirs[..theirs.len() - 1]).is_err());
                assert!(form.check(&[theirs, &[0]].concat()).is_err());
            }
        }
    }
});

//! Texts and numbers without state (ibv_wc_status_str(3), ibv_rate_to_mult(3)).

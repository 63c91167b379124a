//! Work requests built call by call (ibv_wr_post(3)).

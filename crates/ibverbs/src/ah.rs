//! Address handles (ibv_create_ah(3)).

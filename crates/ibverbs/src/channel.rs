//! Completion channels (ibv_create_comp_channel(3), ibv_get_cq_event(3)).

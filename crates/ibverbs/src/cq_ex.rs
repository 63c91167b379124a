//! Extended completion queues: polling entry by entry (ibv_create_cq_ex(3)).

/* hashes.h: the shipped modules by name and hash, for OB_IMPORT. Written by
 * `cargo xtask modules build`. */
#ifndef OB_HASHES_H
#define OB_HASHES_H

#define OB_MODULE_EMPTY \
    "empty#a27685970879a5c33eb7586bf4fbdf3edcf880d84c6fc16f96a8553df5dccf8d"
#define OB_MODULE_ALLOC \
    "alloc#4c5143d149e7040d3def11162457a59b92278e2107f8db81cdc39ae11f4c381d"
#define OB_MODULE_TABLE \
    "table#b240065a5f484624f22a539e63e5d0b8462b3dcf901e0c34e5a47c6715de56b9"
#define OB_MODULE_LIST \
    "list#360d4a45e643a06f73e970b1c192939143231ac2886855b539cb3e2b90baf244"
#define OB_MODULE_LOCK \
    "lock#e58876a8f4143bafae3e6692fab1050b005cda388e93dbb78bfe514bd662e688"
#define OB_MODULE_SCRIPT \
    "script#bca2d699533c8c16972e40ce92307e61cb41da0877be75108a4d34fb24c43918"
#define OB_MODULE_TOPK \
    "topk#a465ff67299921a7ee6fb906a5ca4b76d25e71d1608038af9acf21139a208787"
#define OB_MODULE_BLOCKS \
    "blocks#828147c421e7657ea14789eb4c2912d3a60dea07fadfe6c9ce0cb638cff67179"
#define OB_MODULE_INODE \
    "inode#2adc0890b3a3e4673d30cf7e1ed2d0589f95e91141bfc3ce2575dbb88f07f951"
#define OB_MODULE_NAMES \
    "names#6015bf832993993c137e6992b97392a085e1400e1bd3126df7a57be918b8bffe"
#define OB_MODULE_FS \
    "fs#a51d630c7e12e3ac7bb6c65e563eaa273a62dbde3d606cf9aaae88130f12f3b4"
#define OB_MODULE_FIND \
    "find#93e302ff4e40ab9bbfad7fbd9a934a969cb1318a5cde39426386ed97359583c7"

#endif

// bad_number: NaN and +infinity are told by their bits, since compilers may assume that there are none. In their place stand the
// largest value and an id that is negative on the host; so they come before everything else and are noticed.
const BAD = 0xfffffffeu;

fn is_bad(v: f32) -> bool {
    let bits = bitcast<u32>(v);
    return (bits & 0x7fffffffu) >= 0x7f800000u && bits != 0xff800000u;
}

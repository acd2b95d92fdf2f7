/* Blocks of weights as files have them (kernels/blocks.h). They are 2-byte aligned, those of MXFP4 not at all; `i` is the
 * first input of 32, `row` the address of the output's row. */
uint word_of(uint64_t at)
{
    if (BITS == 4 && FLOATS == 1) {
        Bytes b = Bytes(at);
        return uint(b.v[0]) | uint(b.v[1]) << 8 | uint(b.v[2]) << 16 | uint(b.v[3]) << 24;
    }
    Shorts s = Shorts(at);
    return uint(s.v[0]) | uint(s.v[1]) << 16;
}

/* Address of the block of input i, for blocks of `values` values and `bytes` bytes. */
uint64_t block_address(uint64_t row, uint i, uint values, uint bytes)
{
    return row + i / values * bytes;
}

/* Bytes before the quants of a block of 32. */
const uint HEAD = BITS == 4 && FLOATS == 1 ? 1 : MIN == 1 ? 4 : 2;
const uint SMALL_BYTES = HEAD + (BITS == 5 ? 20 : BITS * 4), LARGE_BYTES = BITS == 4 ? 144 : BITS == 5 ? 176 : 210;

/* The quants as bytes: word j has values 4 j .. 4 j + 3. */
void file_quants(out uint q[8], uint64_t row, uint i)
{
    if (SUPER == 1) {
        uint64_t block = block_address(row, i, 256, LARGE_BYTES);
        uint at = i % 256, part = at / 32;
        [[unroll]] for (uint j = 0; j < 8; j++) {
            if (BITS == 6) {
                uint low = word_of(block + at / 128 * 64 + at % 64 + 4 * j), high = word_of(block + 128 + at / 128 * 32 + 4 * j);
                q[j] = low >> part % 4 / 2 * 4 & 0x0f0f0f0f | (high >> part % 4 * 2 & 0x03030303) << 4;
            } else {
                uint low = word_of(block + LARGE_BYTES - 128 + at / 64 * 32 + 4 * j);
                q[j] = low >> part % 2 * 4 & 0x0f0f0f0f;
                if (BITS == 5)
                    q[j] |= (word_of(block + 16 + 4 * j) >> part & 0x01010101) << 4;
            }
        }
        return;
    }
    uint64_t block = block_address(row, i, 32, SMALL_BYTES) + HEAD;
    if (BITS == 8) {
        [[unroll]] for (uint j = 0; j < 8; j++)
            q[j] = word_of(block + 4 * j);
        return;
    }
    uint fifth = BITS == 5 ? word_of(block) : 0;
    [[unroll]] for (uint j = 0; j < 4; j++) {
        uint word = word_of(block + (BITS == 5 ? 4 : 0) + 4 * j);
        q[j] = word & 0x0f0f0f0f;
        q[4 + j] = word >> 4 & 0x0f0f0f0f;
    }
    /* four bits, each into a byte */
    if (BITS == 5)
        [[unroll]] for (uint j = 0; j < 8; j++)
            q[j] |= ((fifth >> 4 * j & 15) * 0x00204081 & 0x01010101) << 4;
}

/* The scales, as the scale plane stores them: a half, two halves, two bytes, or the exponent of MXFP4. */
uint file_scales(uint64_t row, uint i)
{
    if (SUPER == 1) {
        uint64_t block = block_address(row, i, 256, LARGE_BYTES);
        uint part = i % 256 / 32;
        if (BITS == 6)
            return uint(Shorts(block + 192 + 2 * part).v[0]);
        /* six bits each; see spry_block_q4_k */
        uint shift = part % 4 * 8, first = word_of(block + 4) >> shift & 255, second = word_of(block + 8) >> shift & 255,
             third = word_of(block + 12) >> shift & 255;
        if (part < 4)
            return first & 63 | (second & 63) << 8;
        return third & 15 | first >> 6 << 4 | (third >> 4 | second >> 6 << 4) << 8;
    }
    uint64_t block = block_address(row, i, 32, SMALL_BYTES);
    return HEAD == 1 ? uint(Bytes(block).v[0]) : HEAD == 4 ? word_of(block) : uint(Shorts(block).v[0]);
}

/* The scales that 256 inputs share. */
uint file_super(uint64_t row, uint i)
{
    uint64_t block = block_address(row, i, 256, LARGE_BYTES);
    return BITS == 6 ? uint(Shorts(block + 208).v[0]) : word_of(block);
}

/* 16 bytes of floats from input i on; 0 past the last of n inputs. */
uvec4 file_floats(uint64_t row, uint i, uint n)
{
    uvec4 words = uvec4(0);
    [[unroll]] for (uint k = 0; k < 16 / max(BYTES, 1); k++) {
        if (i + k >= n)
            continue;
        if (BYTES == 4)
            words[k] = Words(row).v[i + k];
        else
            words[k / 2] |= uint(Shorts(row).v[i + k]) << 16 * (k % 2);
    }
    return words;
}

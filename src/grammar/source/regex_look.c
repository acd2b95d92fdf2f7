#include "grammar/source/regex_look.h"

#include "base/compiler.h"

static const spry_code_range all[] = {{0, 0x10FFFF}};

spry_ir_node spry_regex_anything(spry_ir *ir)
{
    return spry_ir_repeat(ir, spry_ir_class(ir, all, 1, false), 0, SPRY_IR_UNBOUNDED);
}

spry_ir_node spry_regex_mark(spry_ir *ir, unsigned mark)
{
    char byte = (char)mark;
    return spry_ir_literal(ir, (spry_view){&byte, 1});
}

/* Any marks and, with `characters`, any characters. */
static spry_ir_node any_marks(spry_ir *ir, bool characters)
{
    spry_ir_node choices[SPRY_IR_END - SPRY_IR_MARKS + 2];
    size_t count = 0;
    for (unsigned mark = SPRY_IR_MARKS; mark <= SPRY_IR_END; mark++)
        choices[count++] = spry_regex_mark(ir, mark);
    if (characters)
        choices[count++] = spry_ir_class(ir, all, 1, false);
    return spry_ir_repeat(ir, spry_ir_choice(ir, choices, count), 0, SPRY_IR_UNBOUNDED);
}

/* Texts with the mark of a look-around at a wrong place. */
static spry_ir_node wrong_look(spry_ir *ir, const spry_regex_look *look, unsigned mark)
{
    spry_ir_node wrong = look->negated ? look->language : spry_ir_subtract(ir, spry_regex_anything(ir), look->language);
    spry_ir_node beside = spry_ir_marked(ir, wrong), others = any_marks(ir, true), at = spry_regex_mark(ir, mark);
    spry_ir_node ahead[] = {others, at, beside}, behind[] = {beside, at, others};
    return spry_ir_sequence(ir, look->behind ? behind : ahead, 3);
}

/* Texts with the mark of a word boundary (or, with `inside`, of its opposite) at a wrong place. */
static spry_ir_node wrong_boundary(spry_ir *ir, unsigned mark, bool inside)
{
    static const spry_code_range letters[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    spry_ir_node marks = any_marks(ir, false), others = any_marks(ir, true), before[2], behind[2], wrong[2];
    for (int word = 0; word < 2; word++) {
        spry_ir_node letter = spry_ir_class(ir, letters, SPRY_COUNT(letters), !word);
        spry_ir_node left = spry_ir_sequence(ir, (spry_ir_node[]){others, letter}, 2);
        spry_ir_node right = spry_ir_sequence(ir, (spry_ir_node[]){letter, others}, 2);
        if (!word) { /* the ends of the text */
            left = spry_ir_repeat(ir, left, 0, 1);
            right = spry_ir_repeat(ir, right, 0, 1);
        }
        before[word] = spry_ir_sequence(ir, (spry_ir_node[]){left, marks}, 2);
        behind[word] = spry_ir_sequence(ir, (spry_ir_node[]){marks, right}, 2);
    }
    for (int word = 0; word < 2; word++)
        wrong[word] = spry_ir_sequence(
            ir, (spry_ir_node[]){before[word], spry_regex_mark(ir, mark), behind[inside ? !word : word]}, 3);
    return spry_ir_choice(ir, wrong, 2);
}

spry_ir_node spry_regex_looks_apply(spry_ir *ir, const spry_regex_looks *looks, size_t first, spry_ir_node node)
{
    for (size_t i = first; i < looks->count; i++)
        node = spry_ir_subtract(ir, node, wrong_look(ir, &looks->items[i], SPRY_IR_MARKS + (unsigned)i));
    if (looks->boundaries && first == 0) {
        node = spry_ir_subtract(ir, node, wrong_boundary(ir, SPRY_MARK_BOUNDARY, false));
        node = spry_ir_subtract(ir, node, wrong_boundary(ir, SPRY_MARK_NO_BOUNDARY, true));
    }
    return node;
}

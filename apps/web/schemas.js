// JSON schemas, checked while they are typed: JSON first, then the keywords whose values have to have a certain form. What
// the server can enforce is its own affair (docs/GRAMMARS.md).

const SCHEMA_TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);
const isSchema = value => typeof value === "boolean" || isObject(value);
const isCount = value => Number.isInteger(value) && value >= 0;
const isPattern = value => {
    try {
        return typeof value === "string" && Boolean(new RegExp(value, "u"));
    } catch {
        return false;
    }
};

const SCHEMA_CHECKS = {
    type: value => [value].flat().length > 0 && [value].flat().every(name => SCHEMA_TYPES.includes(name)),
    properties: isObject,
    required: value => Array.isArray(value) && value.every(name => typeof name === "string"),
    enum: value => Array.isArray(value) && value.length > 0,
    items: isSchema,
    prefixItems: value => Array.isArray(value) && value.every(isSchema),
    additionalProperties: isSchema,
    anyOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    oneOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    allOf: value => Array.isArray(value) && value.length > 0 && value.every(isSchema),
    $defs: isObject,
    $ref: value => typeof value === "string",
    pattern: isPattern,
    minimum: Number.isFinite,
    maximum: Number.isFinite,
    minLength: isCount,
    maxLength: isCount,
    minItems: isCount,
    maxItems: isCount,
};

// The schemas directly inside a schema, with the place of each.
const innerSchemas = schema => [
    ...["properties", "$defs"].flatMap(name => (isObject(schema[name]) ? Object.entries(schema[name]).map(([key, inner]) => [`${name}.${key}`, inner]) : [])),
    ...["anyOf", "oneOf", "allOf", "prefixItems"].flatMap(name => listOf(schema[name]).map((inner, at) => [`${name}.${at}`, inner])),
    ...["items", "additionalProperties"].filter(name => isObject(schema[name])).map(name => [name, schema[name]]),
];

// The place of the first value that has a wrong form, such as "properties.age.type"; "": none.
function schemaFault(schema, place = "", depth = 0) {
    if (typeof schema === "boolean" || depth > 50) {
        return "";
    }
    if (!isObject(schema)) {
        return place;
    }
    const wrong = Object.keys(SCHEMA_CHECKS).find(name => Object.hasOwn(schema, name) && !SCHEMA_CHECKS[name](schema[name]));
    if (wrong) {
        return place + wrong;
    }
    for (const [name, inner] of innerSchemas(schema)) {
        const fault = schemaFault(inner, place + name + ".", depth + 1);
        if (fault) {
            return fault.replace(/\.$/, "");
        }
    }
    return "";
}

// {value, wrong}: the schema in a text (undefined: none), and an error message or "".
function schemaOf(text) {
    if (text.trim() === "") {
        return { value: undefined, wrong: "" };
    }
    let value = null;
    try {
        value = JSON.parse(text);
    } catch (error) {
        return { value: undefined, wrong: say("The schema is not JSON: {0}", error.message) };
    }
    if (!isObject(value)) {
        return { value: undefined, wrong: say("The schema has to be a JSON object.") };
    }
    const fault = schemaFault(value);
    return fault ? { value: undefined, wrong: say("The schema is wrong at {0}.", fault) } : { value, wrong: "" };
}

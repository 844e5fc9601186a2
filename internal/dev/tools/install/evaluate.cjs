// Evaluate runs a Pulumi program with mocks in place of the engine, and prints the Kubernetes
// objects that the program registers as a JSON list.
const { createRequire } = require("node:module");
const path = require("node:path");

const [program, config] = process.argv.slice(2);
if (!config) {
    console.error("usage: evaluate.cjs PROGRAM CONFIGURATION");
    process.exit(2);
}
const load = createRequire(path.resolve(program));
const pulumi = load("@pulumi/pulumi");

const secretKey = "4dabf18193072939515e22adb298388d"; // marks values with secrets in the engine's protocol
function plain(value) {
    if (Array.isArray(value)) {
        return value.map(plain);
    }
    if (value === null || typeof value !== "object") {
        return value;
    }
    if (secretKey in value) {
        return plain(value.value);
    }
    return Object.fromEntries(Object.entries(value).map(([key, v]) => [key, plain(v)]));
}

const objects = [];
pulumi.runtime.setMocks(
    {
        newResource(args) {
            const inputs = plain(args.inputs);
            if (inputs.kind) {
                objects.push(inputs);
            }
            return { id: `${args.name}-id`, state: args.inputs };
        },
        call(args) {
            return args.inputs;
        },
    },
    "workflow-agent",
    "test",
    false,
);
const values = JSON.parse(config);
pulumi.runtime.setAllConfig(
    Object.fromEntries(Object.entries(values).map(([key, value]) => [`workflow-agent:${key}`, value])),
    ["workflow-agent:selfHostedAgentsAccessToken"],
);
load(path.resolve(program));
pulumi.runtime
    .disconnect()
    .then(() => process.stdout.write(`${JSON.stringify(objects)}\n`))
    .catch((error) => {
        console.error(error);
        process.exitCode = 1;
    });

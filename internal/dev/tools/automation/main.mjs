// Automation runs the whole life of a stack in deployments through the Automation API for Node.js,
// as main.go does in Go.
import { RemoteWorkspace } from "@pulumi/pulumi/automation/index.js";

const [name, repository] = process.argv.slice(2);
if (!repository) {
    console.error("usage: main.mjs ORGANIZATION/PROJECT/STACK REPOSITORY");
    process.exit(2);
}
const stack = await RemoteWorkspace.createOrSelectStack(
    { stackName: name, url: repository, branch: "refs/heads/main" },
    {
        envVars: { LEVEL: "info", KEY: { secret: "s3cret" } },
        preRunCommands: ['echo "level=$LEVEL key=$KEY"'],
        inheritSettings: true,
    },
);
const onOutput = (text) => process.stdout.write(text);
const preview = await stack.preview({ onOutput });
console.log("previewed:", preview.stdout !== "");
const up = await stack.up({ onOutput });
console.log("updated:", up.summary.kind, up.summary.result, up.summary.version, "with", Object.keys(up.outputs).length, "outputs");
const refresh = await stack.refresh({ onOutput });
console.log("refreshed:", refresh.summary.kind, refresh.summary.result);
const destroy = await stack.destroy({ onOutput });
console.log("destroyed:", destroy.summary.kind, destroy.summary.result);
console.log("history:", (await stack.history(10, 1)).length, "updates");

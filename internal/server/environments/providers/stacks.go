package providers

import (
	"context"

	"workflowagent/internal/esc/wire"
)

var pulumiStacks = Provider{
	Name:        "pulumi-stacks",
	Description: "Reads the outputs of stacks of the same organization. Secret outputs stay secret.",
	Inputs: encode(objectOf("the stacks", []string{"stacks"}, fields{
		"stacks": mapOf("the stacks, by names of your choice", objectOf("a stack", []string{"stack"}, fields{
			"stack": textOf("the stack, as project/stack"),
		})),
	})),
	Outputs: encode(mapOf("the outputs of the stacks, by the names in stacks", map[string]any{"type": "object", "additionalProperties": true})),
	open:    func(ctx context.Context, c *Call) (wire.Value, error) { return c.Stacks(ctx, c.Inputs) },
}

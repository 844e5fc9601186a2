package site

import (
	"bytes"
	"fmt"
)

// StashType is the type of resources that need no provider.
const StashType = "pulumi:index:Stash"

// State returns the state of a stack with n resources and without secrets.
func State(stack string, n int) []byte {
	var text bytes.Buffer
	text.WriteString(`{"version":3,"deployment":{"manifest":{"time":"2026-01-02T03:04:05Z","magic":"","version":"v3.255.0"},"resources":[`)
	root := "urn:pulumi:" + stack + "::" + Project + "::pulumi:pulumi:Stack::" + Project + "-" + stack
	fmt.Fprintf(&text, `{"urn":%q,"custom":false,"type":"pulumi:pulumi:Stack"}`, root)
	for i := range n {
		fmt.Fprintf(&text, `,{"urn":"urn:pulumi:%s::%s::%s::r%05d","custom":true,"id":"id-%08x","type":%q,`+
			`"inputs":{"input":{"name":"resource %d","size":%d,"zone":"zone-%d"}},`+
			`"outputs":{"input":{"name":"resource %d","size":%d,"zone":"zone-%d"},"output":{"name":"resource %d","address":"10.%d.%d.%d"}},`+
			`"parent":%q,"propertyDependencies":{"input":[]},"created":"2026-01-02T03:04:05.%09dZ","modified":"2026-01-02T03:04:05.%09dZ"}`,
			stack, Project, StashType, i, uint32(i)*2654435761, StashType, i, i%512, i%3, i, i%512, i%3, i, i>>16&255, i>>8&255, i&255, root, i*7919, i*104_729)
	}
	text.WriteString("]}}")
	return text.Bytes()
}

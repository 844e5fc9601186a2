package main

import (
	"fmt"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/structpb"
)

// policy is a rule for each resource, or for the whole stack.
type policy struct {
	name, description string
	level             pulumirpc.EnforcementLevel
	severity          pulumirpc.PolicySeverity
	properties        map[string]any   // the JSON schema of each property of the configuration
	config            *structpb.Struct // the configuration

	// One of the two returns the message of a violation, or "".
	resource func(kind string, properties *structpb.Struct) string
	stack    func(resources []*pulumirpc.AnalyzerResource) string
}

func newPack() *pack {
	size := &policy{
		name: "stack-size", description: "A stack must not have too many resources.",
		level: pulumirpc.EnforcementLevel_ADVISORY, severity: pulumirpc.PolicySeverity_POLICY_SEVERITY_LOW,
		properties: map[string]any{"max": map[string]any{"type": "integer", "default": 100}},
	}
	size.stack = func(resources []*pulumirpc.AnalyzerResource) string {
		most := 100
		if value, ok := size.config.GetFields()["max"]; ok {
			most = int(value.GetNumberValue())
		}
		if len(resources) <= most {
			return ""
		}
		return fmt.Sprintf("The stack has %d resources, and may have %d: split it.", len(resources), most)
	}
	return &pack{policies: []*policy{size, {
		name: "s3-no-public-read", description: "Buckets must not be public.",
		level: pulumirpc.EnforcementLevel_MANDATORY, severity: pulumirpc.PolicySeverity_POLICY_SEVERITY_HIGH,
		resource: func(kind string, properties *structpb.Struct) string {
			acl := properties.GetFields()["acl"].GetStringValue()
			if !strings.HasPrefix(kind, "aws:s3/bucket") || !strings.HasPrefix(acl, "public-read") {
				return ""
			}
			return fmt.Sprintf("The bucket has the ACL %s: choose private.", acl)
		},
	}}}
}

func (p *policy) enabled() bool { return p.level != pulumirpc.EnforcementLevel_DISABLED }

func (p *policy) info() *pulumirpc.PolicyInfo {
	kind := pulumirpc.PolicyType_POLICY_TYPE_RESOURCE
	if p.stack != nil {
		kind = pulumirpc.PolicyType_POLICY_TYPE_STACK
	}
	schema, err := structpb.NewStruct(p.properties)
	if err != nil {
		panic(err) // a property above is not JSON
	}
	return &pulumirpc.PolicyInfo{
		Name: p.name, Description: p.description, EnforcementLevel: p.level, Severity: p.severity, PolicyType: kind,
		ConfigSchema: &pulumirpc.PolicyConfigSchema{Properties: schema},
	}
}

func (p *policy) violation(urn, message string) *pulumirpc.AnalyzeDiagnostic {
	return &pulumirpc.AnalyzeDiagnostic{
		PolicyPackName: name, PolicyPackVersion: version, PolicyName: p.name, Description: p.description,
		EnforcementLevel: p.level, Severity: p.severity, Urn: urn, Message: message,
	}
}

package main

import (
	"context"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

type analyzer struct {
	pulumirpc.UnimplementedAnalyzerServer
	pack *pack
}

// Handshake implements the analyzer.
func (*analyzer) Handshake(context.Context, *pulumirpc.AnalyzerHandshakeRequest) (*pulumirpc.AnalyzerHandshakeResponse, error) {
	return &pulumirpc.AnalyzerHandshakeResponse{}, nil
}

// GetPluginInfo implements the analyzer.
func (a *analyzer) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: a.pack.Version}, nil
}

// GetAnalyzerInfo implements the analyzer.
func (a *analyzer) GetAnalyzerInfo(context.Context, *emptypb.Empty) (*pulumirpc.AnalyzerInfo, error) {
	info := &pulumirpc.AnalyzerInfo{
		Name: a.pack.Name, DisplayName: a.pack.DisplayName, Version: a.pack.Version, SupportsConfig: !a.pack.Fixed,
	}
	for _, p := range a.pack.Policies {
		kind := pulumirpc.PolicyType_POLICY_TYPE_RESOURCE
		if p.Stack {
			kind = pulumirpc.PolicyType_POLICY_TYPE_STACK
		}
		schema, err := structpb.NewStruct(map[string]any{"value": map[string]any{"type": "string"}})
		if err != nil {
			return nil, err
		}
		info.Policies = append(info.Policies, &pulumirpc.PolicyInfo{
			Name: p.Name, Description: p.Description, Message: p.Message, EnforcementLevel: p.level(), PolicyType: kind,
			Severity: p.severity(), ConfigSchema: &pulumirpc.PolicyConfigSchema{Properties: schema},
		})
	}
	return info, nil
}

// Configure implements the analyzer.
func (a *analyzer) Configure(_ context.Context, r *pulumirpc.ConfigureAnalyzerRequest) (*emptypb.Empty, error) {
	for _, p := range a.pack.Policies {
		if c := r.GetPolicyConfig()[p.Name]; c != nil && !a.pack.Fixed {
			p.Level = c.GetEnforcementLevel().String()
			if value := c.GetProperties().GetFields()["value"]; value != nil {
				p.Value = value.GetStringValue()
			}
		}
	}
	return &emptypb.Empty{}, nil
}

// ConfigureStack implements the analyzer.
func (*analyzer) ConfigureStack(context.Context, *pulumirpc.AnalyzerStackConfigureRequest) (*pulumirpc.AnalyzerStackConfigureResponse, error) {
	return &pulumirpc.AnalyzerStackConfigureResponse{}, nil
}

// Analyze implements the analyzer.
func (a *analyzer) Analyze(_ context.Context, r *pulumirpc.AnalyzeRequest) (*pulumirpc.AnalyzeResponse, error) {
	answer := &pulumirpc.AnalyzeResponse{}
	for _, p := range a.pack.Policies {
		if !p.Stack {
			a.report(answer, p, r.GetUrn(), p.checkAt(r.GetType(), r.GetProperties()))
		}
	}
	return answer, nil
}

// AnalyzeStack implements the analyzer.
func (a *analyzer) AnalyzeStack(_ context.Context, r *pulumirpc.AnalyzeStackRequest) (*pulumirpc.AnalyzeResponse, error) {
	answer := &pulumirpc.AnalyzeResponse{}
	for _, p := range a.pack.Policies {
		for _, resource := range r.GetResources() {
			if p.Stack {
				a.report(answer, p, resource.GetUrn(), p.checkAt(resource.GetType(), resource.GetProperties()))
			}
		}
	}
	return answer, nil
}

// checkAt is check, unless the policy is disabled.
func (p *policy) checkAt(kind string, properties *structpb.Struct) string {
	if p.level() == pulumirpc.EnforcementLevel_DISABLED {
		return ""
	}
	return p.check(kind, properties)
}

func (a *analyzer) report(answer *pulumirpc.AnalyzeResponse, p *policy, urn, violation string) {
	if violation == "" {
		return
	}
	level := p.level()
	if level == pulumirpc.EnforcementLevel_REMEDIATE {
		level = pulumirpc.EnforcementLevel_MANDATORY
	}
	answer.Diagnostics = append(answer.Diagnostics, &pulumirpc.AnalyzeDiagnostic{
		PolicyName: p.Name, PolicyPackName: a.pack.Name, PolicyPackVersion: a.pack.Version, Description: p.Description,
		Message: violation, EnforcementLevel: level, Urn: urn, Severity: p.severity(),
	})
}

// Remediate implements the analyzer.
func (a *analyzer) Remediate(_ context.Context, r *pulumirpc.AnalyzeRequest) (*pulumirpc.RemediateResponse, error) {
	answer := &pulumirpc.RemediateResponse{}
	for _, p := range a.pack.Policies {
		if p.Stack || p.level() != pulumirpc.EnforcementLevel_REMEDIATE || p.check(r.GetType(), r.GetProperties()) == "" {
			continue
		}
		properties := proto.CloneOf(r.GetProperties())
		properties.Fields[p.Property] = structpb.NewStringValue(p.Set)
		answer.Remediations = append(answer.Remediations, &pulumirpc.Remediation{
			PolicyName: p.Name, PolicyPackName: a.pack.Name, PolicyPackVersion: a.pack.Version, Description: p.Description,
			Properties: properties,
		})
	}
	return answer, nil
}

// Cancel implements the analyzer.
func (*analyzer) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

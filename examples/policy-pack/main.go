// Command policy is a policy pack that is a program. See README.md.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Name and version of the pack. Publish each change with a new version.
const (
	name    = "storage"
	version = "1.0.0"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// serve answers pulumi, which stops the program with an interrupt.
func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(400 << 20)) // as large as pulumi's requests
	pulumirpc.RegisterAnalyzerServer(server, newPack())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port) // pulumi reads the port from the first line
	return server.Serve(listener)
}

// pack answers the questions of pulumi with the policies.
type pack struct {
	pulumirpc.UnimplementedAnalyzerServer
	policies []*policy
}

// GetAnalyzerInfo describes the pack, also for "pulumi policy publish".
func (p *pack) GetAnalyzerInfo(context.Context, *emptypb.Empty) (*pulumirpc.AnalyzerInfo, error) {
	info := &pulumirpc.AnalyzerInfo{Name: name, Version: version, DisplayName: "Storage", SupportsConfig: true}
	for _, policy := range p.policies {
		info.Policies = append(info.Policies, policy.info())
	}
	return info, nil
}

// GetPluginInfo is part of the protocol.
func (*pack) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version}, nil
}

// Configure receives the level and the properties of each policy that a policy group sets.
func (p *pack) Configure(_ context.Context, r *pulumirpc.ConfigureAnalyzerRequest) (*emptypb.Empty, error) {
	for _, policy := range p.policies {
		if config := r.GetPolicyConfig()[policy.name]; config != nil {
			policy.level, policy.config = config.GetEnforcementLevel(), config.GetProperties()
		}
	}
	return &emptypb.Empty{}, nil
}

// Analyze checks a resource before it is created or updated.
func (p *pack) Analyze(_ context.Context, r *pulumirpc.AnalyzeRequest) (*pulumirpc.AnalyzeResponse, error) {
	response := &pulumirpc.AnalyzeResponse{}
	for _, policy := range p.policies {
		if policy.resource != nil && policy.enabled() {
			if message := policy.resource(r.GetType(), r.GetProperties()); message != "" {
				response.Diagnostics = append(response.Diagnostics, policy.violation(r.GetUrn(), message))
			}
		}
	}
	return response, nil
}

// AnalyzeStack checks all resources at the end of an update.
func (p *pack) AnalyzeStack(_ context.Context, r *pulumirpc.AnalyzeStackRequest) (*pulumirpc.AnalyzeResponse, error) {
	response := &pulumirpc.AnalyzeResponse{}
	for _, policy := range p.policies {
		if policy.stack != nil && policy.enabled() {
			if message := policy.stack(r.GetResources()); message != "" {
				response.Diagnostics = append(response.Diagnostics, policy.violation("", message))
			}
		}
	}
	return response, nil
}

// Remediate would change resources; this pack does not.
func (*pack) Remediate(context.Context, *pulumirpc.AnalyzeRequest) (*pulumirpc.RemediateResponse, error) {
	return &pulumirpc.RemediateResponse{}, nil
}

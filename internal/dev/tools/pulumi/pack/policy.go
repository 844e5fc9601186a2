package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/structpb"
)

// pack is the content of pack.json.
type pack struct {
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	DisplayName string    `json:"displayName"`
	Fixed       bool      `json:"fixed"` // the pack cannot be configured
	Policies    []*policy `json:"policies"`
}

// policy is a policy of a pack.
type policy struct {
	Name        string `json:"name"`
	Level       string `json:"level"`    // advisory (the default), mandatory, remediate or disabled
	Severity    string `json:"severity"` // low, medium, high or critical
	Description string `json:"description"`
	Message     string `json:"message"`
	Stack       bool   `json:"stack"` // a policy of the whole stack instead of each resource

	// Type is the type of the resources that the policy is about, "" for all.
	Type string `json:"type"`
	// A resource violates the policy if Property contains Value. The configuration can replace Value
	// as "value". Level remediate replaces the property by Set.
	Property string `json:"property"`
	Value    string `json:"value"`
	Set      string `json:"set"`

	// Does names what the policy does instead, with Value as argument: "variable" reports the
	// environment variable Value and "file" the file Value as a violation, "dial" reports that a
	// connection to Value (NETWORK:ADDRESS) was made, "write" creates the file Value, "flood" writes
	// 64 MiB to standard output, "hang" never ends, "exit" ends the program.
	Does string `json:"does"`
}

func load(file string) (*pack, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &pack{Name: "lab", Version: "1.0.0", DisplayName: "Lab", Policies: []*policy{{
			Name: "no-bad-content", Level: "mandatory", Severity: "high", Description: "Files must not be bad.",
			Message: "choose another content", Type: "lab:index:File", Property: "content", Value: "bad",
		}}}, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pack{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return p, nil
}

func (p *policy) level() pulumirpc.EnforcementLevel {
	return pulumirpc.EnforcementLevel(pulumirpc.EnforcementLevel_value[strings.ToUpper(p.Level)])
}

func (p *policy) severity() pulumirpc.PolicySeverity {
	return pulumirpc.PolicySeverity(pulumirpc.PolicySeverity_value["POLICY_SEVERITY_"+strings.ToUpper(p.Severity)])
}

// check returns what the resource violates, or "".
func (p *policy) check(kind string, properties *structpb.Struct) (violation string) {
	if p.Type != "" && p.Type != kind {
		return ""
	}
	switch p.Does {
	case "variable":
		if value, ok := os.LookupEnv(p.Value); ok {
			return p.Value + " is " + value
		}
	case "file":
		if data, err := os.ReadFile(p.Value); err == nil {
			return p.Value + " contains " + string(data[:min(len(data), 4096)])
		}
	case "dial":
		network, address, _ := strings.Cut(p.Value, ":")
		if conn, err := net.DialTimeout(network, address, 2*time.Second); err == nil {
			_ = conn.Close()
			return "connected to " + p.Value
		}
	case "write":
		if err := os.WriteFile(p.Value, []byte(p.Name), 0o644); err == nil {
			return "wrote " + p.Value
		}
	case "flood":
		line := strings.Repeat("flood ", 170) + "\n"
		for range 64 << 10 {
			_, _ = os.Stdout.WriteString(line)
		}
	case "hang":
		<-make(chan struct{})
	case "exit":
		os.Exit(3)
	default:
		value := properties.GetFields()[p.Property]
		if value != nil && strings.Contains(text(value), p.Value) {
			return p.Message
		}
	}
	return ""
}

// text returns a property's text, in clear even if the property is a secret.
func text(value *structpb.Value) string {
	if secret, ok := value.GetStructValue().GetFields()["value"]; ok {
		return text(secret)
	}
	return value.GetStringValue()
}

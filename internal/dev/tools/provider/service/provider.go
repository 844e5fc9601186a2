package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// kind is a type of resources.
type kind struct {
	inputs   map[string]string // JSON types; "any" for objects, "strings" for lists
	required []string
	fixed    []string // inputs whose change replaces the resource
	outputs  []string // texts that the server chooses; they are secret if in hidden
	hidden   []string

	// create returns the resource's id and its outputs.
	create func(ctx context.Context, c *client, in record) (string, object, error)
	// read returns the inputs as the server has them, or errGone.
	read func(ctx context.Context, c *client, state record) (object, error)
	// update may be nil if all inputs are fixed.
	update func(ctx context.Context, c *client, state, in record) error
	remove func(ctx context.Context, c *client, state record) error
}

func kindOf(urn resource.URN) (kind, error) {
	token := string(urn.Type())
	k, ok := kinds[token]
	if !ok {
		return k, fmt.Errorf("unknown resource type %s", token)
	}
	return k, nil
}

func newProvider() p.Provider {
	return p.Provider{
		GetSchema: func(context.Context, p.GetSchemaRequest) (p.GetSchemaResponse, error) {
			text, err := json.Marshal(schema())
			return p.GetSchemaResponse{Schema: string(text)}, err
		},
		CheckConfig: func(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
			return p.CheckResponse{Inputs: req.Inputs}, nil
		},
		DiffConfig: func(context.Context, p.DiffRequest) (p.DiffResponse, error) { return p.DiffResponse{}, nil },
		Check: func(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
			return p.CheckResponse{Inputs: req.Inputs}, nil
		},
		Diff:   diff,
		Create: create,
		Read:   read,
		Update: update,
		Delete: remove,
	}
}

func diff(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	k, err := kindOf(req.Urn)
	if err != nil {
		return p.DiffResponse{}, err
	}
	changes := map[string]p.PropertyDiff{}
	before, after := plainMap(req.OldInputs), plainMap(req.Inputs)
	for name := range k.inputs {
		if reflect.DeepEqual(prune(before[name]), prune(after[name])) && !req.Inputs.Get(name).HasComputed() {
			continue
		}
		changes[name] = p.PropertyDiff{Kind: p.Update, InputDiff: true}
		if slices.Contains(k.fixed, name) {
			changes[name] = p.PropertyDiff{Kind: p.UpdateReplace, InputDiff: true}
		}
	}
	return p.DiffResponse{HasChanges: len(changes) > 0, DetailedDiff: changes, DeleteBeforeReplace: true}, nil
}

func create(ctx context.Context, req p.CreateRequest) (p.CreateResponse, error) {
	k, err := kindOf(req.Urn)
	if err != nil || req.DryRun {
		return p.CreateResponse{Properties: req.Properties}, err
	}
	c, err := newClient()
	if err != nil {
		return p.CreateResponse{}, err
	}
	id, out, err := k.create(ctx, c, record(plainMap(req.Properties)))
	if err != nil {
		return p.CreateResponse{}, err
	}
	state := req.Properties
	for _, name := range k.outputs {
		text, ok := out[name].(string)
		if !ok || text == "" {
			return p.CreateResponse{}, fmt.Errorf("the server's response lacks %s", name)
		}
		state = state.Set(name, property.New(text).WithSecret(slices.Contains(k.hidden, name)))
	}
	return p.CreateResponse{ID: id, Properties: state}, nil
}

func read(ctx context.Context, req p.ReadRequest) (p.ReadResponse, error) {
	k, err := kindOf(req.Urn)
	if err != nil {
		return p.ReadResponse{}, err
	}
	c, err := newClient()
	if err != nil {
		return p.ReadResponse{}, err
	}
	got, err := k.read(ctx, c, record(plainMap(req.Properties)))
	if errors.Is(err, errGone) {
		return p.ReadResponse{}, nil
	}
	if err != nil {
		return p.ReadResponse{}, err
	}
	resp := p.ReadResponse{ID: req.ID}
	if resp.Inputs, err = merge(req.Inputs, got); err != nil {
		return p.ReadResponse{}, err
	}
	resp.Properties, err = merge(req.Properties, got)
	return resp, err
}

func update(ctx context.Context, req p.UpdateRequest) (p.UpdateResponse, error) {
	k, err := kindOf(req.Urn)
	if err != nil {
		return p.UpdateResponse{}, err
	}
	state := req.Inputs
	for _, name := range k.outputs {
		state = state.Set(name, req.State.Get(name))
	}
	if req.DryRun {
		return p.UpdateResponse{Properties: state}, nil
	}
	c, err := newClient()
	if err != nil {
		return p.UpdateResponse{}, err
	}
	return p.UpdateResponse{Properties: state}, k.update(ctx, c, record(plainMap(req.State)), record(plainMap(req.Inputs)))
}

func remove(ctx context.Context, req p.DeleteRequest) error {
	k, err := kindOf(req.Urn)
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	if err := k.remove(ctx, c, record(plainMap(req.Properties))); !errors.Is(err, errGone) {
		return err
	}
	return nil
}

func schema() object {
	resources := object{}
	for token, k := range kinds {
		inputs, outputs := object{}, object{}
		for name, kind := range k.inputs {
			inputs[name] = typeOf(kind)
			outputs[name] = typeOf(kind)
		}
		for _, name := range k.outputs {
			outputs[name] = object{"type": "string", "secret": slices.Contains(k.hidden, name)}
		}
		resources[token] = object{"inputProperties": inputs, "requiredInputs": k.required, "properties": outputs, "required": k.required}
	}
	return object{"name": providerName, "version": version, "resources": resources}
}

func typeOf(kind string) object {
	switch kind {
	case "any":
		return object{"$ref": "pulumi.json#/Any"}
	case "strings":
		return object{"type": "array", "items": object{"type": "string"}}
	case "objects":
		return object{"type": "array", "items": object{"$ref": "pulumi.json#/Any"}}
	default:
		return object{"type": kind}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
)

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}

func contains(list []any, v any) bool {
	return slices.ContainsFunc(list, func(other any) bool { return reflect.DeepEqual(prune(other), prune(v)) })
}

// archive returns a policy pack with one file, in the form of clients.
func archive() ([]byte, error) {
	const file = "runtime: lab\n"
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	err1 := w.WriteHeader(&tar.Header{Name: "package/PulumiPolicy.yaml", Mode: 0o644, Size: int64(len(file))})
	_, err2 := w.Write([]byte(file))
	err := errors.Join(err1, err2, w.Close(), z.Close())
	return out.Bytes(), err
}

// upload sends an archive to an address, without a token.
func (c *client) upload(ctx context.Context, address string, header map[string]string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, put, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("uploading a policy pack: %w", err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("uploading a policy pack: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return fmt.Errorf("uploading a policy pack: status %d", res.StatusCode)
	}
	return nil
}

func policyPack() kind {
	packs := func(r record) string { return path("orgs", r.text("organizationName"), "policypacks") }
	// The stock provider names a version by its number to read it, and by its tag to complete and remove it.
	one := func(r record, version string) string {
		return packs(r) + "/" + path(r.text("name"), "versions", version)
	}
	return kind{
		inputs:   map[string]string{"organizationName": "string", "name": "string", "versionTag": "string", "policies": "objects"},
		required: []string{"organizationName", "name", "versionTag"},
		fixed:    []string{"organizationName", "name", "versionTag", "policies"},
		outputs:  []string{"version"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			var out struct {
				Version         int
				UploadURI       string
				RequiredHeaders map[string]string
			}
			body := in.pick("name", "versionTag", "policies")
			body["displayName"], body["runtime"] = in.text("name"), "lab"
			if err := c.call(ctx, post, packs(in), body, &out); err != nil {
				return "", nil, err
			}
			file, err := archive()
			if err == nil {
				err = c.upload(ctx, out.UploadURI, out.RequiredHeaders, file)
			}
			if err == nil {
				err = c.call(ctx, post, one(in, in.text("versionTag"))+"/complete", nil, nil)
			}
			version := fmt.Sprint(out.Version)
			return path(in.text("organizationName"), in.text("name"), version), object{"version": version}, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				Name, VersionTag string
				Policies         []any
			}
			err := c.call(ctx, get, one(state, state.text("version")), nil, &out)
			return object{"name": out.Name, "versionTag": out.VersionTag, "policies": out.Policies}, err
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state, state.text("versionTag")), nil, nil)
		},
	}
}

func policyGroup() kind {
	groups := func(r record) string { return path("orgs", r.text("organizationName"), "policygroups") }
	one := func(r record) string { return groups(r) + "/" + path(r.text("name")) }
	// changes returns single changes that make the lists of before those of after.
	changes := func(before, after record) []any {
		batch := []any{}
		for _, list := range []struct{ members, remove, add string }{{"stacks", "removeStack", "addStack"}, {"policyPacks", "removePolicyPack", "addPolicyPack"}} {
			for _, v := range listOf(before[list.members]) {
				if !contains(listOf(after[list.members]), v) {
					batch = append(batch, object{list.remove: v})
				}
			}
			for _, v := range listOf(after[list.members]) {
				if !contains(listOf(before[list.members]), v) {
					batch = append(batch, object{list.add: v})
				}
			}
		}
		return batch
	}
	return kind{
		inputs: map[string]string{
			"organizationName": "string", "name": "string", "entityType": "string", "mode": "string", "stacks": "objects", "policyPacks": "objects",
		},
		required: []string{"organizationName", "name", "entityType", "mode"},
		fixed:    []string{"organizationName", "entityType", "mode"},
		create: func(ctx context.Context, c *client, in record) (string, object, error) {
			err := c.call(ctx, post, groups(in), in.pick("name", "entityType", "mode"), nil)
			if err == nil {
				err = c.call(ctx, patch, one(in)+"/batch", changes(record{}, in), nil)
			}
			return path(in.text("organizationName"), in.text("name")), nil, err
		},
		read: func(ctx context.Context, c *client, state record) (object, error) {
			var out struct {
				Name, EntityType, Mode string
				Stacks                 []any
				AppliedPolicyPacks     []object
			}
			err := c.call(ctx, get, one(state), nil, &out)
			packs := []any{}
			for _, p := range out.AppliedPolicyPacks { // as the program writes them
				packs = append(packs, record(p).pick("name", "versionTag", "config"))
			}
			return object{"name": out.Name, "entityType": out.EntityType, "mode": out.Mode, "stacks": out.Stacks, "policyPacks": packs}, err
		},
		update: func(ctx context.Context, c *client, state, in record) error {
			batch := changes(state, in)
			if state.text("name") != in.text("name") {
				batch = append(batch, object{"newName": in.text("name")})
			}
			return c.call(ctx, patch, one(state)+"/batch", batch, nil)
		},
		remove: func(ctx context.Context, c *client, state record) error {
			return c.call(ctx, del, one(state), nil, nil)
		},
	}
}

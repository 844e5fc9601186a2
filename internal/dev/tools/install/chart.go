package main

import (
	"fmt"
	"path/filepath"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

const packaging = "../../../../packaging"

// object is a Kubernetes object as JSON.
type object = map[string]any

// template renders a chart as "helm template --namespace" does, and returns its files.
func template(chart, namespace, values string) (map[string]string, error) {
	loaded, err := loader.Load(filepath.Join(packaging, "helm", chart))
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "test", Namespace: namespace, IsInstall: true}
	rendered, err := chartutil.ToRenderValues(loaded, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, rendered)
}

// inOrder returns the objects of a chart's files in the order in which Helm creates them.
func inOrder(files map[string]string) ([]string, error) {
	objects := map[string]string{}
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" {
			objects[name] = text
		}
	}
	_, manifests, err := releaseutil.SortManifests(objects, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, fmt.Errorf("sorting the objects: %w", err)
	}
	var sorted []string
	for _, manifest := range manifests {
		sorted = append(sorted, manifest.Content)
	}
	return sorted, nil
}

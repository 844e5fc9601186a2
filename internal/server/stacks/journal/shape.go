package journal

import (
	"errors"
	"fmt"

	"workflowagent/internal/server/stacks/rawjson"
)

// The first byte of a valid JSON value determines its type.

func isNull(v []byte) bool   { return v[0] == 'n' }
func isTrue(v []byte) bool   { return v[0] == 't' }
func isFlag(v []byte) bool   { return v[0] == 't' || v[0] == 'f' }
func isText(v []byte) bool   { return v[0] == '"' }
func isObject(v []byte) bool { return v[rawjson.SkipSpace(v, 0)] == '{' }
func isList(v []byte) bool   { return v[rawjson.SkipSpace(v, 0)] == '[' }

func mustBe(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New("must be " + what)
}

// shape maps member names to checks of their types. All members can be absent or null.
type shape map[string]func([]byte) error

// resourceShape contains the members that a replay reads. The client validates all others when it
// reads the state.
var resourceShape = shape{
	"urn": text, "parent": text, "provider": text, "deletedWith": text, "viewOf": text,
	"extensionRef": text, "snippetID": text,
	"delete": boolean, "pendingReplacement": boolean, "taint": boolean, "refreshBeforeUpdate": boolean,
	"dependencies": texts, "replaceWith": texts, "aliases": texts,
	"propertyDependencies": listsByName, "resourceHooks": listsByName,
}

var (
	operationShape       = shape{"resource": checkResource, "type": text}
	secretsProviderShape = shape{"type": text}
	snippetShape         = shape{"references": textsByName}
	snapshotShape        = shape{
		"manifest": object, "secrets_providers": object, "metadata": object, "extensions": object,
		"resources": each(checkResource), "pending_operations": each(checkOperation), "snippets": checkSnippets,
	}
)

func checkResource(v []byte) error  { return check(v, resourceShape) }
func checkOperation(v []byte) error { return check(v, operationShape) }

func checkSnapshot(v []byte) error {
	if err := CheckMembers(v); err != nil {
		return err
	}
	return check(v, snapshotShape)
}

// maxMembers bounds the number of a deployment's members, which a replay searches. Deployments have
// seven.
const maxMembers = 100

// CheckMembers returns an error unless a deployment meets the requirements for the base of a
// replay.
func CheckMembers(deployment []byte) error {
	n := 0
	for name, value := range rawjson.Members(deployment) {
		if name == "resources" && !isNull(value) && !isList(value) {
			return errors.New("has a malformed member: \"resources\" must be an array")
		}
		if n++; n > maxMembers {
			return fmt.Errorf("has more than %d members", maxMembers)
		}
	}
	return nil
}

func checkSnippets(v []byte) error {
	return each(func(v []byte) error { return check(v, snippetShape) })(v)
}

// check returns an error for the first member of an object whose type differs from the shape.
func check(v []byte, s shape) error {
	if !isObject(v) {
		return mustBe(false, "an object")
	}
	for name, value := range rawjson.Members(v) {
		if isType := s[name]; isType != nil && !isNull(value) {
			if err := isType(value); err != nil {
				return fmt.Errorf("has a malformed member: %q %w", name, err)
			}
		}
	}
	return nil
}

// CheckFeatures returns an error unless the features of a state are null or a list of strings.
func CheckFeatures(v []byte) error {
	if isNull(v) {
		return nil
	}
	return texts(v)
}

func text(v []byte) error    { return mustBe(isText(v), "a string") }
func boolean(v []byte) error { return mustBe(isFlag(v), "true or false") }
func object(v []byte) error  { return mustBe(isObject(v), "an object") }
func texts(v []byte) error   { return each(text)(v) }

func each(isType func([]byte) error) func([]byte) error {
	return func(v []byte) error {
		if !isList(v) {
			return mustBe(false, "an array")
		}
		for element := range rawjson.Elements(v) {
			if err := isType(element); err != nil {
				return fmt.Errorf("has a malformed element: it %w", err)
			}
		}
		return nil
	}
}

func textsByName(v []byte) error { return byName(v, text) }
func listsByName(v []byte) error { return byName(v, texts) }

func byName(v []byte, isType func([]byte) error) error {
	if !isObject(v) {
		return mustBe(false, "an object")
	}
	for name, value := range rawjson.Members(v) {
		if isNull(value) {
			continue
		}
		if err := isType(value); err != nil {
			return fmt.Errorf("has a malformed member: %q %w", name[:min(len(name), shortName)], err)
		}
	}
	return nil
}

// shortName is the length to which errors cut names. A name can be as long as a request.
const shortName = 100

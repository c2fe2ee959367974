package foreign

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fields that are not one line of text. What a field's name ends with jsonSuffix holds is JSON.
const (
	findings   = "kafila.sidecar.v1.DoctorReply.text"
	numbers    = "kafila.sidecar.v1.MetricsReply.text"
	answer     = "kafila.sidecar.v1.GenerateReply.text" // the model's own words
	jsonSuffix = "_json"
)

// Clean makes all text of a message harmless, in place, however deep it is.
func Clean(message proto.Message) { clean(message.ProtoReflect()) }

func clean(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			cleanMap(field, value.Map())
		case field.IsList():
			for i := range value.List().Len() {
				value.List().Set(i, cleaned(field, field.Kind(), value.List().Get(i)))
			}
		default:
			m.Set(field, cleaned(field, field.Kind(), value))
		}
		return true
	})
}

// cleanMap cleans keys too, since members' names are some.
func cleanMap(field protoreflect.FieldDescriptor, entries protoreflect.Map) {
	var keys []protoreflect.MapKey
	entries.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	for _, key := range keys {
		value := cleaned(field, field.MapValue().Kind(), entries.Get(key))
		if field.MapKey().Kind() == protoreflect.StringKind {
			entries.Clear(key)
			key = protoreflect.ValueOfString(Line(key.String())).MapKey()
		}
		entries.Set(key, value)
	}
}

// cleaned is one value of a field, of one in a list or map; a message is cleaned in place.
func cleaned(field protoreflect.FieldDescriptor, kind protoreflect.Kind, value protoreflect.Value) protoreflect.Value {
	switch kind {
	case protoreflect.MessageKind:
		clean(value.Message())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(cleanedText(field, value.String()))
	}
	return value
}

func cleanedText(field protoreflect.FieldDescriptor, text string) string {
	switch name := field.FullName(); {
	case name == answer:
		return text
	case name == findings, name == numbers:
		return Lines(text)
	case strings.HasSuffix(string(name), jsonSuffix):
		return JSON(text)
	}
	return Line(text)
}

// JSON cleans what stands in JSON's strings. Text in which nothing is escaped, and which is harmless, stays as it was
// written; other JSON is written anew.
func JSON(text string) string {
	if !strings.Contains(text, `\`) && Lines(text) == text {
		return text
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // as it was written
	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return Line(text)
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(cleanedValue(value)); err != nil {
		return Line(text)
	}
	return strings.TrimSuffix(written.String(), "\n")
}

func cleanedValue(value any) any {
	switch v := value.(type) {
	case string:
		return Line(v)
	case []any:
		for i := range v {
			v[i] = cleanedValue(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, one := range v {
			clean[Line(key)] = cleanedValue(one)
		}
		return clean
	}
	return value
}

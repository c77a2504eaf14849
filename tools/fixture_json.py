"""JSON of test fixtures: indented for people, but a list of numbers stays on one line."""

import json
import re


def write_json(path, value):
    text = json.dumps(value, indent=1)
    text = re.sub(r"\[([\s\d.,-]+)\]", lambda match: "[" + " ".join(match.group(1).split()) + "]", text)
    path.write_text(text + "\n")

#!/bin/sh
# Says in one sentence what is wrong with the Java that Spark would start; silent when it will do.
need=17

if [ -n "${JAVA_HOME:-}" ]; then
    java="$JAVA_HOME/bin/java"
    where="JAVA_HOME ($JAVA_HOME)"
else
    java=java
    where="the search path"
fi

if ! command -v "$java" >/dev/null 2>&1; then
    echo "Spark needs Java $need or newer, but $where has no java: install a JDK or set JAVA_HOME." >&2
    exit 1
fi

# The banner goes to stderr, after any line that JAVA_TOOL_OPTIONS adds:
#   openjdk version "17.0.15" 2025-04-15        java version "1.8.0_392"
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1)
# Up to Java 8 the major version is the second number.
major=$(printf '%s\n' "$version" | sed -e 's/^1\.//' -e 's/[^0-9].*$//')

if [ -z "$major" ]; then
    echo "Spark needs Java $need or newer, but the java of $where does not tell its version: install a JDK or set JAVA_HOME." >&2
    exit 1
fi
if [ "$major" -lt "$need" ]; then
    echo "Spark needs Java $need or newer, but the java of $where is version $version: install a newer JDK or set JAVA_HOME." >&2
    exit 1
fi

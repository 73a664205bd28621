/** What generated clients name, and Debian does not have. */
package org.openapitools.jackson.nullable;

import com.fasterxml.jackson.databind.module.SimpleModule;

public class JsonNullableModule extends SimpleModule {}

/** What generated models name, and Debian does not have. The program reads no field that is null. */
package org.openapitools.jackson.nullable;

import com.fasterxml.jackson.annotation.JsonCreator;

public record JsonNullable<T>(T value) {
  @JsonCreator
  public static <T> JsonNullable<T> of(T value) {
    return new JsonNullable<>(value);
  }

  public static <T> JsonNullable<T> undefined() {
    return new JsonNullable<>(null);
  }

  public boolean isPresent() {
    return value != null;
  }

  public T get() {
    return value;
  }

  public T orElse(T other) {
    return isPresent() ? value : other;
  }
}
